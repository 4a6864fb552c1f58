"""One thread's time for a linear layer of 896 inputs and 4,864 outputs, by PyTorch and by the native kernels.

Turns alternate, and before each one as much is read as no cache holds, since in a model other layers' weights
are. Figures are the least CPU time of a turn, which other programs disturb least.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import torch
import torch.nn.functional as F

from turnout.kernels.choice import native_kernels
from turnout.lab.results.markdown import markdown_table, write_marked

INPUTS, OUTPUTS = 896, 4864
ROWS = (1, 4, 8, 32, 128, 512)
EMPTYING = 2**24
"""Numbers of float32."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Compute = Callable[[torch.Tensor], object]


def ways_of(dtype: torch.dtype) -> dict[str, Compute]:
    """By name, what computes the layer. Of float32, weights that bfloat16 holds are kept as such."""
    kernels = native_kernels()
    weight = torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(0)) / INPUTS**0.5
    given = {"native": weight.to(dtype)}
    if dtype == torch.float32:
        given["native, bfloat16 weights"] = weight.bfloat16().float()
    ways: dict[str, Compute] = {"PyTorch": partial(F.linear, weight=given["native"])}
    for name, numbers in given.items():
        ways[name] = partial(kernels.linear, packed=kernels.pack([numbers]), bias=None)
    return ways


def least(ways: dict[str, Compute], x: torch.Tensor, turns: int) -> dict[str, float]:
    """Milliseconds by way."""
    found = dict.fromkeys(ways, float("inf"))
    emptying = torch.ones(EMPTYING)
    for turn in range(turns + 1):
        for name, compute in ways.items():
            emptying.sum()
            began = time.thread_time()
            compute(x)
            if turn:  # the first is not counted
                found[name] = min(found[name], 1e3 * (time.thread_time() - began))
    return found


def table(dtype: torch.dtype, turns: int) -> str:
    ways = ways_of(dtype)
    rows = []
    for count in ROWS:
        x = torch.randn(count, INPUTS, generator=torch.Generator().manual_seed(count)).to(dtype)
        found = least(ways, x, turns)
        speed = 2e-6 * count * INPUTS * OUTPUTS / min(found.values())
        rows.append((f"{count}", *(f"{each:.2f}" for each in found.values()), f"{speed:.0f}"))
    headings = ("rows", *(f"{name}, ms" for name in ways), "GFLOP/s of the fastest")
    return markdown_table(headings, rows, "r" * len(headings))


@click.command(help=__doc__)
@click.option("--dtype", default="float32", show_default=True, type=click.Choice(list(DTYPES)))
@click.option("--turns", default=15, show_default=True)
@click.option("--write", type=click.Path(path_type=Path, exists=True), help="Put the table into this file.")
def main(dtype: str, turns: int, write: Path | None) -> None:
    torch.set_num_threads(1)
    variant = native_kernels().variant
    text = f"{variant}, {dtype}, one thread:\n\n{table(DTYPES[dtype], turns)}"
    click.echo(text)
    if write is not None:
        write_marked(write, f"linears-{variant}", text)


if __name__ == "__main__":
    main()
