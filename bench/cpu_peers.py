"""Turnout on a CPU beside other servers of language models, in one run.

Every engine serves the same prompts, slices of Python source, greedily to the same lengths:

\b
    W1  one request, 128 tokens in, 64 out: milliseconds from token to token
    W2  32 of them at once: tokens a second
    W3  32 at once, 16 to 512 in, 8 to 128 out: tokens a second
    W4  16 at once that share 512 tokens and have 32 of their own, 16 out: tokens a second

A machine's speed drifts, so every engine takes a turn before any takes a second one, ratios are of turns
that followed one another, and turns go to and fro, so that none always follows the same. Each engine is a
process of its own; a peer that is named for the first time is installed in an environment of its own, and
the model converted for it, under `--folder`. vLLM gets AMD's zentorch on the CPUs that it is for, and is
then called so. Nothing else should be computing; with `--reduced`, half the requests are sent and they
generate half as much.

A mixture of experts (1B parameters, 0.2B of them for a token):

\b
    python scripts/make_model.py --shape moe-1b --family qwen3_moe --out moe-1b
    python bench/cpu_peers.py --model moe-1b --peers transformers --workload W1 --workload W2
"""

from __future__ import annotations

import itertools
import os
import platform
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
from peers.cpu import cpuinfo
from peers.options import options, publish
from peers.peers import PEERS, Setting, turnout
from peers.process import Job, Worker

from turnout.lab.jobs.prompts import Prompts
from turnout.lab.results.markdown import markdown_table
from turnout.models.hub.resolve import resolve_model

WORKLOADS = ("W1", "W2", "W3", "W4")
REST = 0.5
"""Seconds before a turn: threads wait actively for a while after their last work (Intel's OpenMP 0.2 s), and
should not have the cores of the next engine."""
WARMING = 4
"""The part of a workload that every engine serves before figures are taken."""
MADE_UP = Prompts((), seed=0)


# ------------------------------------------------------------------ workloads


def workload(name: str, seed: int, part: int) -> list[Job]:
    """`part`: 1 for all of it, 2 for half of the requests and of the tokens they generate.

    No two prompts begin alike, in this turn or another, but where the workload says so: an engine with a
    prefix cache would be given what others have to compute.
    """
    rng = random.Random(f"{name} {seed}")
    numbers = itertools.count()

    def piece(length: int) -> list[int]:
        return MADE_UP.made(f"{name} {seed} {next(numbers)}", length)

    if name == "W1":
        return [(piece(128), 64 // part)]
    if name == "W2":
        return [(piece(128), 64 // part) for _ in range(32 // part)]
    if name == "W3":
        return [(piece(rng.randint(16, 512)), rng.randint(8, 128) // part) for _ in range(32 // part)]
    shared = piece(512)
    return [(shared + piece(32), 16 // part) for _ in range(16 // part)]


# ------------------------------------------------------------------ figures


@dataclass
class Figures:
    """The figures of an engine's runs, by workload; more is better."""

    first_token: float
    rates: dict[str, list[float]] = field(default_factory=dict)
    memory: int = 0


def rate(worker: Worker, name: str, seed: int, part: int) -> float:
    """Tokens a second; in W1 after the first, whose time is that of another request's only token."""
    time.sleep(REST)
    jobs = workload(name, seed, part)
    tokens: int = sum(output for _, output in jobs)
    first = 0.0
    if name == "W1":
        other, _ = workload(name, -seed - 1, part)[0]
        first, tokens = worker.run([(other, 1)]), tokens - 1
    seconds: float = worker.run(jobs) - first
    return tokens / seconds


def measure(workers: list[Worker], names: list[str], repeats: int, part: int) -> list[Figures]:
    figures = [Figures(worker.first_token) for worker in workers]
    for name in names:
        for worker in workers:
            rate(worker, name, 0, WARMING * part)
        pairs = list(zip(workers, figures, strict=True))
        for repeat in range(1, turns(name, repeats) + 1):
            for worker, all_of in pairs if repeat % 2 else reversed(pairs):
                reached = rate(worker, name, repeat, part)
                all_of.rates.setdefault(name, []).append(reached)
                all_of.memory = max(all_of.memory, worker.memory)
        for worker, all_of in pairs:
            click.echo(f"{name} {worker.name}: {shown(name, all_of.rates[name])}", err=True)
    return figures


def turns(name: str, repeats: int) -> int:
    """W1 is soon over, and a difference of two times: it takes more of them to know it as well."""
    return 3 * repeats if name == "W1" else repeats


def shown(name: str, rates: list[float]) -> str:
    middle = statistics.median(rates)
    return f"{1000 / middle:,.2f} ms" if name == "W1" else f"{middle:,.1f} tokens/s"


def table(workers: list[Worker], figures: list[Figures], names: list[str]) -> str:
    headings = ["", *(heading for name in names for heading in (name, "ratio")), "first token", "memory"]
    rows = []
    for worker, theirs in zip(workers, figures, strict=True):
        cells = [worker.name]
        for name in names:
            cells += [shown(name, theirs.rates[name]), ratio(figures[0].rates[name], theirs.rates[name])]
        if theirs is figures[0]:
            cells[2::2] = ["" for _ in names]
        rows.append((*cells, f"{theirs.first_token:.1f} s", f"{theirs.memory / 1e9:.1f} GB"))
    return markdown_table(headings, rows)


def ratio(ours: list[float], theirs: list[float]) -> str:
    """How many times as fast Turnout is, with the least and the most."""
    ratios = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def machine() -> str:
    return cpuinfo("model name") or platform.processor() or platform.machine()


def features() -> str:
    flags = cpuinfo("flags").split()
    known: Mapping[str, str] = {
        "avx2": "AVX2",
        "avx_vnni": "AVX-VNNI",
        "avx512f": "AVX-512",
        "avx512_vnni": "VNNI",
        "avx512_bf16": "bfloat16",
        "amx_tile": "AMX",
    }
    return ", ".join(name for flag, name in known.items() if flag in flags) or "features unknown"


@click.command(help=__doc__, params=options(PEERS, "torch,transformers"))
@click.option("--workload", "names", multiple=True, default=WORKLOADS, show_default=True,
              type=click.Choice(WORKLOADS))  # fmt: skip
@click.option("--gguf", default="", type=click.Choice(["", "bf16", "q8_0", "q4_0"]),
              help="Turnout and llama.cpp serve one GGUF file of this type.")  # fmt: skip
@click.option("--kv", default="paged", show_default=True,
              help="Turnout's KV backend. OpenVINO keeps 8 bits, as paged:dtype=int8 does.")  # fmt: skip
@click.option("--repeats", default=5, show_default=True, help="Turns of each; three times as many in W1.")
@click.option("--reduced", is_flag=True, help="Half the requests, half the tokens of each.")
@click.option("--threads", default=os.cpu_count(), show_default=True)
def main(
    model: str,
    peers: list[str],
    dtype: str,
    quantized: bool,
    names: tuple[str, ...],
    repeats: int,
    reduced: bool,
    threads: int,
    folder: Path,
    gguf: str,
    kv: str,
    write: Path | None,
    mark: str,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    setting = Setting(resolve_model(model).absolute(), quantized, dtype, threads, folder.absolute(), gguf, kv)
    workers = [turnout(setting)]
    try:
        workers += [PEERS[peer](setting) for peer in peers]
        figures = measure(workers, list(names), repeats, 2 if reduced else 1)
    finally:
        for worker in workers:
            worker.stop()
    size = ", half of the requests and tokens" if reduced else ""
    what = f"{machine()} ({features()}), {threads} threads; medians of {repeats} turns{size}."
    publish(
        f"{what}\n\n{table(workers, figures, list(names))}",
        write,
        mark or "-".join(filter(None, (setting.model.name, gguf))),
    )


if __name__ == "__main__":
    main()
