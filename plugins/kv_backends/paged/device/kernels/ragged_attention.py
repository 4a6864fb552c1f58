"""Attention of a ragged batch over a pool, read through block tables, for prompts and decoding alike."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.plugins.kv_backends.paged.device.kernels.lanes import Lanes
from turnout.plugins.kv_backends.paged.device.kernels.ragged_programs import attend, merge
from turnout.plugins.kv_backends.paged.host.kv_groups import READ_TOGETHER

__all__ = ["FEW_PARTS", "WIDE", "Prefix", "Tiles", "most_parts", "parts_of", "ragged_attention"]

STEP = 64
"""Positions of context that a program reads at a time, unless registers would be too few, or few rows read 16
or 8 bits: see `_step`."""
STEP_OF_HALVES, STEP_OF_CODES = 32, 128
"""Where few rows read 16 bits, and 8 bits."""
WIDE = 128
PART = 512
"""Positions of context in a part, from which on a split pays."""
FEW_PARTS, MOST_PARTS = 16, 64
"""As many as most contexts have, which are combined faster, and as any has."""


class Tiles(NamedTuple):
    """The chunks of a batch that one launch attends; int32 tensors, on the device."""

    tables: Tensor
    """[chunks, blocks]: the first slot of each block of a chunk's context."""
    firsts: Tensor
    """[chunks]: the row of a chunk's first token in the flat batch."""
    starts: Tensor
    """[chunks]: the position of a chunk's first token in its sequence."""
    lengths: Tensor
    """[chunks]: a chunk's tokens."""
    cells: Tensor
    """[chunks]: a chunk's first row in the results of contexts that are read in parts; for prefixes, the row
    of each of `Prefix.flat_rows`."""
    chunks: Tensor
    """[tiles]: the chunk of each tile."""
    offsets: Tensor
    """[tiles]: a tile's first token within its chunk."""
    rows: int
    """Rows of a tile, padded to a power of two, at least 16."""
    parts: int
    """Parts that the longest context is split into; 1: no context is split."""
    tokens: int
    """Tokens of chunks whose contexts may be split."""
    prefix: Prefix | None = None
    """Prefixes that are read once for several chunks; None: there are none."""


class Prefix(NamedTuple):
    """Prefixes that chunks have in common."""

    tiles: Tiles
    """Each of its chunks is a prefix, whose length is in `starts`; its tokens are entries of `flat_rows`."""
    flat_rows: Tensor
    """int32: rows of the flat batch, prefix after prefix."""
    skips: Tensor
    """int32 [chunks]: the prefix length of each of the step's chunks."""


def parts_of(context: int) -> int:
    """The number of parts that a context of so many positions is split into."""
    return min(MOST_PARTS, -(-context // PART))


def most_parts() -> int:
    """The most parts that any context is split into."""
    return MOST_PARTS


def ragged_attention(
    q: Tensor,
    lanes: Lanes,
    tiles: Tiles,
    block_size: int,
    out: Tensor,
    rule: LayerAttention,
    sinks: Tensor | None = None,
) -> None:
    """Writes the attention of the tiles' tokens, by the rule of the layer, to their rows of `out`.

    q, out: [tokens, heads, head_dim], `out` contiguous; sinks: [heads]. The tokens' own keys and values must
    be in the pool already. A rule with a window takes no prefix that is read once.
    """
    layer = _Layer(lanes, block_size, rule, sinks)
    parts = tiles.parts + (tiles.prefix.tiles.parts if tiles.prefix else 0)
    if parts == 1:
        _attend(q, layer, tiles, out)
        return
    parted = _Parts.of(q, parts, tiles.tokens, tiles.prefix is not None)
    _attend(q, layer, tiles, out, parted)
    if tiles.prefix is not None:
        shared = tiles.prefix.tiles._replace(prefix=tiles.prefix)
        _attend(q, layer, shared, out, parted, first_part=tiles.parts, shared=True)
    _merge(tiles, parted, lanes.k.shape[1], out)


class _Layer(NamedTuple):
    """What all launches of a layer's attention read, and by which rule."""

    lanes: Lanes
    block_size: int
    rule: LayerAttention
    sinks: Tensor | None


class _Parts(NamedTuple):
    """Results of contexts that are read in parts."""

    mixed: Tensor
    """float32 [parts, cells, heads, head_dim]: a cell for each token whose context may be split."""
    logsums: Tensor
    """float32 [parts, cells, heads]: log2 of the sum of the weights; -inf where a part has no context."""

    @classmethod
    def of(cls, q: Tensor, parts: int, tokens: int, some_only: bool) -> _Parts:
        """some_only: in some parts not every token has a context."""
        mixed = torch.empty((parts, tokens, *q.shape[1:]), dtype=torch.float32, device=q.device)
        logsums = torch.empty(mixed.shape[:3], dtype=torch.float32, device=q.device)
        return cls(mixed, logsums.fill_(float("-inf")) if some_only else logsums)


def _attend(
    q: Tensor,
    layer: _Layer,
    tiles: Tiles,
    out: Tensor,
    parted: _Parts | None = None,
    *,
    first_part: int = 0,
    shared: bool = False,
) -> None:
    """Writes to `out`, or to `parted` from its part `first_part` on."""
    lanes, block_size, rule, sinks = layer
    (_, heads, dim), kv_heads = q.shape, lanes.k.shape[1]
    prefix, wide, step = tiles.prefix, dim > WIDE, _step(dim, tiles.rows, lanes)
    attend[len(tiles.chunks), kv_heads, tiles.parts](
        q,
        lanes.k,
        lanes.v,
        lanes.k_scales,
        lanes.v_scales,
        sinks,
        tiles.tables,
        tiles.firsts,
        tiles.starts,
        tiles.lengths,
        tiles.chunks,
        tiles.offsets,
        prefix.skips if prefix else tiles.starts,
        prefix.flat_rows if prefix else tiles.starts,
        tiles.cells,
        out,
        parted.mixed if parted else out,
        parted.logsums if parted else out,
        first_part,
        rule.effective_scale,
        rule.softcap or 0.0,
        rule.window or 0,
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
        STEP=step,
        TOGETHER=min(step, READ_TOGETHER),
        PART=PART,
        MOST_PARTS=MOST_PARTS,
        SPLIT=parted is not None,
        SKIPS=prefix is not None and not shared,
        SHARED=shared,
        WINDOWED=rule.window is not None,
        CAPPED=rule.softcap is not None,
        SINKS=sinks is not None,
        BLOCK=block_size,
        CODES=lanes.codes,
        # Products of float32 keep their precision; tf32 has 10 bits.
        PRECISION="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=4 if tiles.rows <= 64 else 8,
        # Lookups of blocks and reads of blocks each run ahead by their own stages: of three stages either
        # would have one, and every load would be waited for at once. Many rows of large heads fit two.
        num_stages=2 if wide and tiles.rows >= 64 else 5,
    )


def _step(dim: int, rows: int, lanes: Lanes) -> int:
    if dim > WIDE:
        return STEP // 2
    if lanes.codes != "none":
        return STEP_OF_CODES if rows <= 16 else STEP if rows <= 64 else STEP // 2
    return STEP_OF_HALVES if rows <= 16 and lanes.k.element_size() == 2 else STEP


def _merge(tiles: Tiles, parted: _Parts, kv_heads: int, out: Tensor) -> None:
    parts, cells, heads, dim = parted.mixed.shape
    most = FEW_PARTS if tiles.parts <= FEW_PARTS else MOST_PARTS
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
        PADDED=triton.next_power_of_2(most + MOST_PARTS if tiles.prefix else most),
    )
