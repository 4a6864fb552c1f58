"""Attention of a ragged batch over a pool, read through block tables: for prompts and for decoding alike."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from turnout.plugins.kv_backends.paged.device.kernels.lanes import Lanes
from turnout.plugins.kv_backends.paged.device.kernels.ragged_programs import attend, merge

__all__ = ["WIDE", "Prefix", "Tiles", "most_parts", "parts_of", "ragged_attention"]

STEP = 64
"""Positions of context that a program reads at a time; half as many where registers would be too few: of
heads larger than `WIDE`, and of 8-bit numbers for many rows."""
WIDE = 128
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
    cells: Tensor
    """[chunks]: the first of its rows in what is kept of contexts that are read in parts; of prefixes, the
    row of each of `Prefix.places`."""
    chunks: Tensor
    """[tiles]: which chunk a tile is of."""
    offsets: Tensor
    """[tiles]: its first token within the chunk."""
    rows: int
    """Of a tile, padded: a power of two, at least 16."""
    parts: int
    """Into how many the longest context is split; 1: none is."""
    tokens: int
    """Of chunks whose contexts may be split."""
    prefix: Prefix | None = None
    """What is read once for several chunks; None: nothing is."""


class Prefix(NamedTuple):
    """Prefixes that chunks have in common."""

    tiles: Tiles
    """With a prefix for each chunk, which `starts` says the length of; tokens are counted in `places`."""
    places: Tensor
    """int32: rows of the flat batch, those of one prefix after the other."""
    skips: Tensor
    """int32 [chunks]: how long the prefix of each of the step's chunks is."""


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
    parts = tiles.parts + (tiles.prefix.tiles.parts if tiles.prefix else 0)
    if parts == 1:
        _attend(q, lanes, tiles, block_size, out)
        return
    parted = _Parts.of(q, parts, tiles.tokens, tiles.prefix is not None)
    _attend(q, lanes, tiles, block_size, out, parted)
    if tiles.prefix is not None:
        shared = tiles.prefix.tiles._replace(prefix=tiles.prefix)
        _attend(q, lanes, shared, block_size, out, parted, first_part=tiles.parts, shared=True)
    _merge(tiles, parted, lanes.k.shape[1], out)


class _Parts(NamedTuple):
    """Results of contexts that are read in parts."""

    mixed: Tensor
    """float32 [parts, cells, heads, head_dim]: a cell for each token of which a context may be split."""
    logsums: Tensor
    """float32 [parts, cells, heads]: of the weights, to the base of 2; -inf where a part has no context."""

    @classmethod
    def of(cls, q: Tensor, parts: int, tokens: int, some_only: bool) -> _Parts:
        """some_only: there are parts in which not every token has a context."""
        mixed = torch.empty((parts, tokens, *q.shape[1:]), dtype=torch.float32, device=q.device)
        logsums = torch.empty(mixed.shape[:3], dtype=torch.float32, device=q.device)
        return cls(mixed, logsums.fill_(float("-inf")) if some_only else logsums)


def _attend(
    q: Tensor,
    lanes: Lanes,
    tiles: Tiles,
    block_size: int,
    out: Tensor,
    parted: _Parts | None = None,
    *,
    first_part: int = 0,
    shared: bool = False,
) -> None:
    """Into `out`, or into `parted` from its part `first_part` on."""
    (_, heads, dim), kv_heads = q.shape, lanes.k.shape[1]
    prefix, wide = tiles.prefix, dim > WIDE
    half = wide or (lanes.codes != "none" and tiles.rows > 64)
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
        prefix.skips if prefix else tiles.starts,
        prefix.places if prefix else tiles.starts,
        tiles.cells,
        out,
        parted.mixed if parted else out,
        parted.logsums if parted else out,
        first_part,
        dim**-0.5,
        parted.mixed.shape[1] if parted else 0,
        q.stride(0),
        q.stride(1),
        lanes.k.stride(0),
        lanes.k.stride(1),
        *lanes.scale_strides,
        tiles.tables.stride(0),
        share=heads // kv_heads,
        dim=dim,
        DIM=triton.next_power_of_2(dim),
        ROWS=tiles.rows,
        STEP=STEP // 2 if half else STEP,
        PART=PART,
        MOST_PARTS=MOST_PARTS,
        SPLIT=parted is not None,
        SKIPS=prefix is not None and not shared,
        SHARED=shared,
        BLOCK=block_size,
        CODES=lanes.codes,
        # float32 means float32, not the 10 bits of tf32.
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=4 if tiles.rows <= 64 else 8,
        # Looking blocks up takes as many turns ahead as reading them: of three stages one is left for either,
        # and what is asked for is waited for at once. Many rows of large heads have no room for more.
        num_stages=2 if wide and tiles.rows >= 64 else 5,
    )


def _merge(tiles: Tiles, parted: _Parts, kv_heads: int, out: Tensor) -> None:
    parts, cells, heads, dim = parted.mixed.shape
    merge[len(tiles.chunks), tiles.rows * kv_heads // heads, heads](
        parted.mixed,
        parted.logsums,
        out,
        tiles.firsts,
        tiles.lengths,
        tiles.chunks,
        tiles.offsets,
        tiles.cells,
        cells,
        parts,
        dim=dim,
        DIM=triton.next_power_of_2(dim),
        PADDED=triton.next_power_of_2(MOST_PARTS * (2 if tiles.prefix else 1)),
    )
