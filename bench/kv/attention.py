"""Attention of decode steps by native kernels, over keys and values as they are computed and in 8 bits.

Each of the layers has a pool of its own, so that keys and values come from memory.
"""

from __future__ import annotations

import statistics
import time

import click
import torch
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels.attention.stored import StoredVectors
from turnout.kernels.choice import native_kernels
from turnout.kernels.compiled import BlockTables, CpuKernels
from turnout.kernels.threads import take_over_threads
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.pool import make_storage
from turnout.plugins.kv_backends.storage.tensors import PoolShape

BLOCK = 16
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
STORED: tuple[KVDtype, ...] = ("auto", "int8", "fp8")


@click.command(help=__doc__)
@click.option("--sequences", default=32, show_default=True)
@click.option("--context", "contexts", default=(256, 1024), multiple=True, show_default=True, help="Tokens.")
@click.option("--heads", default=6, show_default=True)
@click.option("--kv-heads", default=2, show_default=True)
@click.option("--head-dim", default=64, show_default=True)
@click.option("--layers", default=8, show_default=True)
@click.option("--repeats", default=15, show_default=True, help="Turns, in which each comes once.")
def main(
    sequences: int,
    contexts: tuple[int, ...],
    heads: int,
    kv_heads: int,
    head_dim: int,
    layers: int,
    repeats: int,
) -> None:
    take_over_threads()
    kernels = native_kernels()
    rule = LayerAttention(heads, kv_heads, head_dim, head_dim)
    for context in contexts:
        blocks = -(-context // BLOCK)
        slots = torch.randperm(sequences * blocks).view(sequences, blocks) * BLOCK
        ones, starts = torch.ones(sequences, dtype=torch.int64), torch.full((sequences,), context - 1)
        tables = BlockTables(BLOCK, torch.arange(sequences), ones, starts, slots)
        shape = PoolShape.of(rule, layers, slots.numel() * BLOCK)
        for name, dtype in DTYPES.items():
            q = torch.randn(sequences, heads, head_dim).to(dtype)
            pools = {stored: filled(stored, shape, dtype) for stored in STORED}

            times: dict[KVDtype, list[float]] = {stored: [] for stored in STORED}
            for _ in range(repeats):
                for stored, pool in pools.items():
                    times[stored].append(seconds(kernels, q, pool, tables) / layers)
            middle = {stored: statistics.median(found) * 1e6 for stored, found in times.items()}
            shown = ", ".join(f"{stored} {of:,.0f} us" for stored, of in middle.items())
            click.echo(f"{kernels.variant}, {context} tokens of {sequences}, {name}: {shown} a layer")


def filled(
    stored: KVDtype, shape: PoolShape, dtype: torch.dtype
) -> list[tuple[StoredVectors, StoredVectors]]:
    storage = make_storage(stored, shape, torch.device("cpu"), dtype)
    slots = torch.arange(shape.slots)
    for layer in range(shape.layers):
        k, v = torch.randn(2, shape.slots, shape.kv_heads, shape.key_dim).to(dtype)
        storage.write(layer, slots, k, v)
    return [storage.stored(layer) for layer in range(shape.layers)]


def seconds(
    kernels: CpuKernels, q: Tensor, pool: list[tuple[StoredVectors, StoredVectors]], tables: BlockTables
) -> float:
    began = time.perf_counter()
    for keys, values in pool:
        kernels.attend(q, keys, values, tables)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
