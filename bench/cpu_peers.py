"""Turnout on a CPU beside other servers of language models, in one run.

Everybody serves the same prompts, slices of Python source, greedily to the same lengths:

    W1  one request, 128 tokens in, 64 out
    W2  32 of them at once
    W3  32 at once, 16 to 512 in, 8 to 128 out
    W4  16 at once that share 512 tokens and have 32 of their own, 16 out

Runs alternate between the engines, since a machine's speed drifts; ratios are of runs that followed one
another. With `--threads 1` time is the thread's own, so that figures can be had on a machine that is busy.
`--peer openvino` needs the python of an environment that has openvino-genai (`--python`), and the model as
OpenVINO's own (`--converted`).
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import click
import torch

import turnout
from turnout.core.config import EngineConfig
from turnout.core.request import RequestSpec, SamplingParams
from turnout.lab.marked import write_marked
from turnout.models.resolve import resolve_model
from turnout.runner.assembly import build_engine
from turnout.text.tokenizer import load_tokenizer

WORKER = Path(__file__).parent / "openvino_worker.py"


@dataclass(frozen=True)
class Job:
    prompt: list[int]
    output: int


class EngineUnderTest(Protocol):
    name: str

    def run(self, jobs: list[Job]) -> float:
        """Serve all of `jobs` at once; seconds until the last token."""
        ...


def clock() -> float:
    """Seconds: of this thread alone where it is the only one that computes."""
    return time.thread_time() if torch.get_num_threads() == 1 else time.perf_counter()


# ------------------------------------------------------------------ workloads


def source_tokens() -> list[int]:
    files = sorted(Path(turnout.__file__).parent.joinpath("core").glob("*.py"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return load_tokenizer(resolve_model("turnout-tiny")).encode(text)


def workload(name: str, source: list[int], seed: int) -> list[Job]:
    rng = random.Random(f"{name} {seed}")

    def piece(length: int) -> list[int]:
        start = rng.randrange(len(source) - length)
        return source[start : start + length]

    if name in ("W1", "W2"):
        return [Job(piece(128), 64) for _ in range(1 if name == "W1" else 32)]
    if name == "W3":
        return [Job(piece(rng.randint(16, 512)), rng.randint(8, 128)) for _ in range(32)]
    shared = piece(512)
    return [Job(shared + piece(32), 16) for _ in range(16)]


# ------------------------------------------------------------------ engines


class Turnout:
    """The engine in this process."""

    def __init__(self, model: str, dtype: str, kernels: str, quantization: str) -> None:
        quantized = "" if quantization == "none" else f" {quantization}"
        self.name = f"turnout {kernels}{quantized}"
        self.engine = build_engine(
            EngineConfig(
                model=model,
                dtype=dtype,
                cpu_kernels=kernels,
                quantization=quantization,
                max_model_len=1024,
                kv_memory="1GiB",
            )
        ).engine
        self.count = 0

    def run(self, jobs: list[Job]) -> float:
        started = clock()
        for job in jobs:
            self.count += 1
            params = SamplingParams(temperature=0, max_tokens=job.output, ignore_eos=True)
            self.engine.add(RequestSpec(id=str(self.count), prompt=job.prompt, params=params, seed=0))
        while self.engine.busy:
            self.engine.step()
        return clock() - started


class Transformers:
    """``generate`` on one padded batch, to the longest output."""

    name = "transformers"

    def __init__(self, model: str, dtype: str) -> None:
        from transformers import AutoModelForCausalLM

        kind = "auto" if dtype == "auto" else getattr(torch, dtype)
        model_class: Any = AutoModelForCausalLM
        self.model = model_class.from_pretrained(resolve_model(model), dtype=kind).eval()

    @torch.inference_mode()
    def run(self, jobs: list[Job]) -> float:
        longest = max(len(job.prompt) for job in jobs)
        output = max(job.output for job in jobs)
        padding = [longest - len(job.prompt) for job in jobs]
        ids = [[0] * pad + job.prompt for pad, job in zip(padding, jobs, strict=True)]
        mask = [[0] * pad + [1] * len(job.prompt) for pad, job in zip(padding, jobs, strict=True)]
        started = clock()
        self.model.generate(
            torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            max_new_tokens=output,
            min_new_tokens=output,
            do_sample=False,
            pad_token_id=0,
        )
        return clock() - started


class OpenVino:
    """OpenVINO GenAI's continuous batching, in a process with packages of its own."""

    name = "openvino"

    def __init__(self, python: str, model: str) -> None:
        self.worker = subprocess.Popen(
            [python, str(WORKER), model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._ask([Job([1, 2, 3], 2)])

    def run(self, jobs: list[Job]) -> float:
        return self._ask(jobs)

    def _ask(self, jobs: list[Job]) -> float:
        assert self.worker.stdin is not None and self.worker.stdout is not None
        self.worker.stdin.write(json.dumps([[job.prompt, job.output] for job in jobs]) + "\n")
        self.worker.stdin.flush()
        answer = self.worker.stdout.readline()
        if not answer:
            raise click.ClickException("OpenVINO's worker ended; what it wrote above says why")
        return float(json.loads(answer))


# ------------------------------------------------------------------ figures


def measure(engines: list[EngineUnderTest], names: list[str], repeats: int) -> dict[str, list[list[float]]]:
    """Tokens a second, by workload: one list for each engine, of all its runs."""
    source = source_tokens()
    results: dict[str, list[list[float]]] = {}
    for name in names:
        rates: list[list[float]] = [[] for _ in engines]
        for repeat in range(repeats + 1):
            jobs = workload(name, source, repeat)
            for engine, collected in zip(engines, rates, strict=True):
                rate = sum(job.output for job in jobs) / engine.run(jobs)
                if repeat:  # the first is for warming up
                    collected.append(rate)
        results[name] = rates
        for engine, collected in zip(engines, rates, strict=True):
            click.echo(f"{name} {engine.name}: {statistics.median(collected):.1f} tokens/s")
    return results


def table(engines: list[EngineUnderTest], results: dict[str, list[list[float]]]) -> str:
    ours = engines[0].name
    lines = [
        f"| workload | engine | tokens/s | {ours} against it |",
        "|---|---|---|---|",
    ]
    for name, rates in results.items():
        for engine, collected in zip(engines, rates, strict=True):
            ratios = sorted(mine / theirs for mine, theirs in zip(rates[0], collected, strict=True))
            ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            shown = "" if engine is engines[0] else ratio
            lines.append(f"| {name} | {engine.name} | {statistics.median(collected):,.1f} | {shown} |")
    return "\n".join(lines)


def machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.partition(":") for line in cpuinfo.read_text().splitlines())
        model = next((value.strip() for key, _, value in lines if key.strip() == "model name"), model)
    threads = torch.get_num_threads()
    place = "1 thread, its own time" if threads == 1 else f"{threads} threads"
    return f"{model}, {torch.backends.cpu.get_cpu_capability()}, {place}"


@click.command(help=__doc__)
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--quantization", default="none", show_default=True)
@click.option("--workload", "names", multiple=True, default=("W1", "W2", "W3", "W4"), show_default=True)
@click.option("--repeats", default=5, show_default=True)
@click.option("--threads", type=int, help="As many as torch chooses, unless given.")
@click.option("--peer", "peers", multiple=True, default=("torch", "transformers"), show_default=True,
              type=click.Choice(["torch", "transformers", "openvino"]))  # fmt: skip
@click.option("--python", default="python", help="That has openvino-genai.")
@click.option("--converted", default="", help="Folder with the model as OpenVINO's own.")
@click.option("--write", type=click.Path(path_type=Path), help="Document to write the table into.")
@click.option("--mark", default="", help="Between which marks; default: the model's name.")
def main(
    model: str,
    dtype: str,
    quantization: str,
    names: tuple[str, ...],
    repeats: int,
    threads: int | None,
    peers: tuple[str, ...],
    python: str,
    converted: str,
    write: Path | None,
    mark: str,
) -> None:
    if threads:
        torch.set_num_threads(threads)
    engines: list[EngineUnderTest] = [Turnout(model, dtype, "native", quantization)]
    for peer in peers:
        if peer == "torch":
            engines.append(Turnout(model, dtype, "torch", quantization))
        elif peer == "transformers":
            engines.append(Transformers(model, dtype))
        else:
            engines.append(OpenVino(python, converted))
    results = measure(engines, list(names), repeats)
    text = f"{machine()}; {dtype}; medians of {repeats} runs.\n\n{table(engines, results)}"
    click.echo(text)
    if write:
        write_marked(write, mark or Path(model).name, text)


if __name__ == "__main__":
    main()
