"""What it takes to add up tensors between processes of one machine: by shared memory, and by gloo's sockets.

A tensor of 32 sequences and a model's width is what a decoding step adds up twice in each layer. Ranks are
processes of one thread, forked. Turns of both kinds alternate, and the table has medians, beside those of
copying what a rank writes and reads in any case. Nothing else should be computing.

\b
    python bench/ranks/collectives.py --write docs/explanation/performance-cpu.md
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path

import click
import torch
from torch import Tensor

from turnout.core.interfaces.collective import Collective
from turnout.core.meeting import Meeting
from turnout.kernels.choice import native_kernels
from turnout.kernels.collectives import open_collective
from turnout.lab.results.markdown import markdown_table, write_marked

KINDS = ("shm", "gloo")
ROWS = (1, 8, 32, 256, 2048)
TURN_SECONDS = 0.04


def seconds_of(ranks: Collective, x: Tensor, count: int) -> float:
    """Seconds of one sum, over so many."""
    ranks.barrier()
    began = time.perf_counter()
    for _ in range(count):
        ranks.all_reduce(x)
    return (time.perf_counter() - began) / count


def copy_seconds(x: Tensor, size: int, count: int) -> float:
    """Seconds of what no sum can do without: a rank writes its tensor, reads all, and writes the sum."""
    shared, out = [x.clone() for _ in range(size)], x.clone()
    began = time.perf_counter()
    for _ in range(count):
        shared[0].copy_(x)
        for each in shared:
            out.copy_(each)
    return (time.perf_counter() - began) / count


def measure(groups: dict[str, Collective], width: int, turns: int) -> list[dict[str, float]]:
    """By number of rows: medians, in microseconds."""
    table = []
    for rows in ROWS:
        x = torch.zeros(rows, width, dtype=torch.bfloat16)
        counts = {}
        for kind, ranks in groups.items():
            once = ranks.all_reduce_max(torch.tensor([seconds_of(ranks, x, 5)]))
            counts[kind] = max(3, min(2000, int(TURN_SECONDS / float(once))))
        size = groups["shm"].size
        taken: dict[str, list[float]] = {kind: [] for kind in (*groups, "copying")}
        for _ in range(turns):
            for kind, ranks in groups.items():
                taken[kind].append(seconds_of(ranks, x, counts[kind]))
            taken["copying"].append(copy_seconds(x, size, counts["shm"]))
        table.append({kind: statistics.median(each) * 1e6 for kind, each in taken.items()})
    return table


def run_rank(rank: int, size: int, meetings: dict[str, Meeting], width: int, turns: int, answer: int) -> None:
    torch.set_num_threads(1)
    groups = {kind: open_collective(kind, meeting, rank, size) for kind, meeting in meetings.items()}
    found = measure(groups, width, turns)
    if rank == 0:
        os.write(answer, json.dumps(found).encode())


def of_ranks(size: int, width: int, turns: int) -> list[dict[str, float]]:
    """Forks the ranks, and returns what rank 0 measured."""
    meetings = {kind: Meeting.on_this_machine() for kind in KINDS}
    reading, writing = os.pipe()
    children = []
    for rank in range(size):
        child = os.fork()
        if not child:
            try:
                run_rank(rank, size, meetings, width, turns, writing)
            finally:
                os._exit(0)
        children.append(child)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    for child in children:
        os.waitpid(child, 0)
    if not text:
        raise click.ClickException("a rank failed; its message is above")
    found: list[dict[str, float]] = json.loads(text)
    return found


@click.command(help=__doc__)
@click.option("--ranks", default=2, show_default=True, help="Processes.")
@click.option("--width", default=896, show_default=True, help="Columns of a tensor, in bfloat16.")
@click.option("--turns", default=9, show_default=True, help="Turns of each kind.")
@click.option("--write", type=click.Path(exists=True, path_type=Path), help="A page to write the table into.")
def main(ranks: int, width: int, turns: int, write: Path | None) -> None:
    native_kernels()  # compiled once, not by each rank
    found = of_ranks(ranks, width, turns)
    cells = [
        (
            f"[{rows}, {width}]",
            f"{each['shm']:.1f}",
            f"{each['gloo']:.1f}",
            f"{each['gloo'] / each['shm']:.1f}",
            f"{each['copying']:.1f}",
        )
        for rows, each in zip(ROWS, found, strict=True)
    ]
    table = markdown_table(("bfloat16", "shm, µs", "gloo, µs", "gloo / shm", "copying alone, µs"), cells)
    click.echo(table)
    if write:
        write_marked(write, "collectives", table)


if __name__ == "__main__":
    main()
