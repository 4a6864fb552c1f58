"""Attention of a ragged batch over a pool, read through block tables: for prompts and for decoding alike."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from turnout.plugins.kv_backends.kernels.lanes import Lanes
from turnout.plugins.kv_backends.kernels.ragged_programs import attend, merge

__all__ = ["PART", "Tiles", "most_parts", "parts_of", "ragged_attention"]

STEP = 64
"""Positions of context that a program reads at a time."""
PART = 512
"""Positions of context from which splitting it pays."""
MOST_PARTS = 16


class Tiles(NamedTuple):
    """Chunks of a batch that are attended by one launch; int32, on the device."""

    tables: Tensor
    """[chunks, blocks]: the pool's slot at which each block of a chunk's context begins."""
    firsts: Tensor
    """[chunks]: row of the flat batch where its tokens begin."""
    starts: Tensor
    """[chunks]: position of its first token in its sequence."""
    lengths: Tensor
    """[chunks]: its tokens."""
    chunks: Tensor
    """[tiles]: which chunk a tile is of."""
    offsets: Tensor
    """[tiles]: its first token within the chunk."""
    rows: int
    """Of a tile, padded: a power of two, at least 16."""
    parts: int
    """Into how many the longest context is split; 1: none is."""


def parts_of(context: int) -> int:
    """Into how many a context of so many positions is split."""
    return min(MOST_PARTS, -(-context // PART))


def most_parts() -> int:
    """Into how many any context is split at most."""
    return MOST_PARTS


def ragged_attention(q: Tensor, lanes: Lanes, tiles: Tiles, block_size: int, out: Tensor) -> None:
    """Causal attention of the tiles' tokens, into their rows of `out`.

    q, out: [tokens, heads, head_dim], `out` contiguous. What the tokens themselves have written to the pool
    is part of their context.
    """
    (tokens, heads, dim), kv_heads = q.shape, lanes.k.shape[1]
    share, split = heads // kv_heads, tiles.parts > 1
    partial = q.new_empty((tiles.parts, *q.shape) if split else 0, dtype=torch.float32)
    logsums = q.new_empty((tiles.parts, tokens, heads) if split else 0, dtype=torch.float32)
    attend[len(tiles.chunks), kv_heads, tiles.parts](
        q,
        lanes.k,
        lanes.v,
        lanes.k_scales,
        lanes.v_scales,
        tiles.tables,
        tiles.firsts,
        tiles.starts,
        tiles.lengths,
        tiles.chunks,
        tiles.offsets,
        out,
        partial,
        logsums,
        dim**-0.5,
        tokens,
        q.stride(0),
        q.stride(1),
        lanes.k.stride(0),
        lanes.k.stride(1),
        *lanes.scale_strides,
        tiles.tables.stride(0),
        share=share,
        dim=dim,
        DIM=triton.next_power_of_2(dim),
        ROWS=tiles.rows,
        STEP=STEP,
        PART=PART,
        MOST_PARTS=MOST_PARTS,
        SPLIT=split,
        BLOCK=block_size,
        CODES=lanes.codes,
        # float32 means float32, not the 10 bits of tf32.
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=4 if tiles.rows <= 64 else 8,
    )
    if split:
        merge[len(tiles.chunks), tiles.rows // share, heads](
            partial,
            logsums,
            out,
            tiles.firsts,
            tiles.lengths,
            tiles.chunks,
            tiles.offsets,
            tokens,
            tiles.parts,
            dim=dim,
            DIM=triton.next_power_of_2(dim),
            PADDED=triton.next_power_of_2(MOST_PARTS),
        )
