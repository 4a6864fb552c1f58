"""Offline throughput and time per token of Turnout beside transformers, in one run.

For each concurrency, every engine serves the same random prompts greedily to the same length. Runs
alternate between the engines, since a machine's speed drifts; figures are medians over the repeats.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import torch

from turnout.config import EngineConfig
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.hub.resolve import resolve_model
from turnout.runner.assembly import build_engine
from turnout.runner.memory.device import choose_device

Prompts = list[list[int]]


@dataclass(frozen=True)
class ThroughputResult:
    """Of one run. Times in milliseconds; TPOT excludes the first token."""

    tokens_per_second: float
    ttft_ms: float
    tpot_ms: float


class Turnout:
    """The engine in this process."""

    def __init__(self, model: str, kv: str, dtype: str, device: str = "auto", **options: Any) -> None:
        self.name = f"turnout {kv}"
        config = EngineConfig(model=model, kv=kv, dtype=dtype, device=device, **options)
        self.assembled = build_engine(config)
        self.count = 0

    def run(self, prompts: Prompts, output: int) -> ThroughputResult:
        engine, started = self.assembled.engine, time.perf_counter()
        params = SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)
        for prompt in prompts:
            self.count += 1
            engine.add(RequestSpec(id=str(self.count), prompt=prompt, params=params, seed=0))
        first: dict[str, float] = {}
        last: dict[str, float] = {}
        while engine.busy:
            deltas, now = engine.step(), time.perf_counter() - started
            for delta in deltas:
                first.setdefault(delta.request_id, now)
                last[delta.request_id] = now
        tpots = [(last[r] - first[r]) / max(1, output - 1) for r in first]
        total = len(prompts) * output / max(last.values())
        return ThroughputResult(
            total, 1e3 * statistics.median(first.values()), 1e3 * statistics.median(tpots)
        )


class Transformers:
    """``generate`` on one batch of equal lengths, its best case."""

    name = "transformers"

    def __init__(self, model: str, dtype: str, device: str = "auto") -> None:
        from transformers import AutoModelForCausalLM

        kind = "auto" if dtype == "auto" else getattr(torch, dtype)
        model_class: Any = AutoModelForCausalLM
        self.device = choose_device(device)
        self.model = model_class.from_pretrained(resolve_model(model), dtype=kind).eval().to(self.device)

    @torch.inference_mode()
    def run(self, prompts: Prompts, output: int) -> ThroughputResult:
        first = self._seconds(prompts, 1)
        whole = self._seconds(prompts, output)
        tpot = (whole - first) / max(1, output - 1)
        return ThroughputResult(len(prompts) * output / whole, 1e3 * first, 1e3 * tpot)

    def _seconds(self, prompts: Prompts, output: int) -> float:
        started = time.perf_counter()
        self.generate(prompts, output)
        return time.perf_counter() - started

    @torch.inference_mode()
    def generate(self, prompts: Prompts, output: int) -> Prompts:
        """The tokens that follow prompts of equal length."""
        ids = torch.tensor(prompts, device=self.device)
        whole = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=output,
            min_new_tokens=output,
            do_sample=False,
            pad_token_id=0,
        )
        tokens: Prompts = whole[:, ids.shape[1] :].tolist()
        return tokens


class TransformersContinuous(Transformers):
    """transformers' own continuous batching."""

    name = "transformers, continuous batching"
    _sized: tuple[int, ...] = ()
    """What its cache was made for: requests, longest prompt, tokens of each."""

    def run(self, prompts: Prompts, output: int) -> ThroughputResult:
        """The first run of a size makes its cache and captures graphs, and those after it keep them.

        Not in inference mode: it computes in a thread of its own, and may not write there to what it makes
        here. Raises RuntimeError where tokens are missing, which it only logs.
        """
        from transformers import GenerationConfig

        make: Any = GenerationConfig
        config = make(max_new_tokens=output, min_new_tokens=output, do_sample=False)
        size = (len(prompts), max(map(len, prompts)), output)
        if size != self._sized:
            self.model.destroy_cached_continuous_batching_manager()
            self._sized = size
        started = time.perf_counter()
        found = self.model.generate_batch(
            inputs=prompts, generation_config=config, persistent_manager=True, record_timestamps=True
        )
        times = [request.timestamps for request in found.values()]
        tokens = sum(map(len, times))
        if tokens != len(prompts) * output:
            raise RuntimeError(f"{self.name} gave {tokens} of {len(prompts) * output} tokens")
        ttfts = [each[0] - started for each in times]
        tpots = [(each[-1] - each[0]) / max(1, output - 1) for each in times]
        whole = max(each[-1] for each in times) - started
        return ThroughputResult(
            tokens / whole, 1e3 * statistics.median(ttfts), 1e3 * statistics.median(tpots)
        )


def median(results: list[ThroughputResult]) -> ThroughputResult:
    columns = zip(*(asdict(result).values() for result in results), strict=True)
    return ThroughputResult(*(statistics.median(column) for column in columns))


def random_prompts(count: int, length: int, seed: int) -> Prompts:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, 4000, (count, length), generator=generator).tolist()


@click.command()
@click.option("--model", default="turnout-tiny", show_default=True)
@click.option("--kv", multiple=True, default=("paged", "contiguous"), show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--concurrency", multiple=True, type=int, default=(1, 32), show_default=True)
@click.option("--prompt", "prompt_length", default=128, show_default=True, help="Tokens.")
@click.option("--output", default=64, show_default=True, help="Tokens.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--peer/--no-peer", default=True, help="Run transformers beside it.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures there.")
def main(
    model: str,
    kv: tuple[str, ...],
    dtype: str,
    device: str,
    concurrency: tuple[int, ...],
    prompt_length: int,
    output: int,
    repeats: int,
    peer: bool,
    json_file: Path | None,
) -> None:
    """Compare engines on MODEL; one warm-up run each is not counted."""
    engines: list[Any] = [Turnout(model, name, dtype, device) for name in kv]
    if peer:
        engines.append(Transformers(model, dtype, device))
    click.echo(
        f"{model}, {dtype}, {device}, prompts of {prompt_length}, {output} tokens out, median of {repeats}"
    )
    click.echo(f"{'engine':<20}{'concurrent':>12}{'tokens/s':>12}{'TTFT ms':>12}{'TPOT ms':>12}")
    rows = []
    for count in concurrency:
        measured = measure([engine.run for engine in engines], count, prompt_length, output, repeats)
        for engine, result in zip(engines, measured, strict=True):
            figures = "".join(f"{value:>12.1f}" for value in asdict(result).values())
            click.echo(f"{engine.name:<20}{count:>12}{figures}")
            rows.append({"engine": engine.name, "concurrency": count, **asdict(result)})
    if json_file:
        json_file.write_text(json.dumps(rows, indent=2) + "\n")


def measure(
    runs: list[Callable[[Prompts, int], ThroughputResult]], count: int, length: int, output: int, repeats: int
) -> list[ThroughputResult]:
    results: list[list[ThroughputResult]] = [[] for _ in runs]
    for repeat in range(repeats + 1):
        # New prompts each time: a prefix cache must have nothing to find.
        prompts = random_prompts(count, length, seed=1000 * count + repeat)
        for run, collected in zip(runs, results, strict=True):
            result = run(prompts, output)
            if repeat:
                collected.append(result)
    return [median(collected) for collected in results]


if __name__ == "__main__":
    main()
