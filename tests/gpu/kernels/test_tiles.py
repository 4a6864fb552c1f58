"""In what order a GPU is given the tiles of a step, and how large products' are."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
import torch

from turnout.core.types.plan import Chunk
from turnout.plugins.kv_backends.paged.device.slot_mapping import slots_table
from turnout.plugins.kv_backends.paged.device.tiles import tiles_of
from turnout.plugins.quantization.gpu import products
from turnout.plugins.quantization.gpu.products import Weights


def chunk(start: int, length: int) -> Chunk:
    nobodys: Any = None
    return Chunk(nobodys, start, [0] * length, 1)


def test_long_tiles_that_read_most_begin_first() -> None:
    """Those that begin last are waited for by all, so they had better be short."""
    chunks = [chunk(0, 300), chunk(500, 200), chunk(90, 1)]
    slots = slots_table([array("i", range(44))] * 3, 16)
    _, tiles = tiles_of(chunks, slots, 16, 2, torch.device("cpu"))
    reads = [chunks[of].start + offset for of, offset in zip(tiles.chunks, tiles.offsets, strict=True)]
    assert reads == sorted([*range(0, 300, 64), *range(500, 700, 64)], reverse=True)


@pytest.mark.parametrize("rows", [1, 64, 100, 256, 4096])
@pytest.mark.parametrize("outputs", [4096, 6144, 28672])
def test_products_of_codes_have_tiles_for_a_whole_card(outputs: int, rows: int) -> None:
    """And none of them adds parts up in a second kernel."""
    weights = Weights("int8", torch.zeros(outputs, 4096, dtype=torch.int8), torch.ones(outputs, 1))
    tiling = products._tiling(rows, weights, both=True)
    columns, height, parts = tiling.grid(rows, outputs)
    assert parts == 1
    assert columns * height >= products.PROGRAMS // 2
