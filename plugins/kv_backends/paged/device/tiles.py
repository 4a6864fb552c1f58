"""A step's chunks as the ragged attention kernel takes them: block tables, and tiles of query tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from turnout.core.types.plan import Chunk
from turnout.kernels.gpu.staging import to_device
from turnout.kernels.ragged import ranges
from turnout.plugins.kv_backends.paged.device.kernels.ragged_attention import Prefix, Tiles, parts_of
from turnout.plugins.kv_backends.paged.device.shared_prefixes import SharedPrefix
from turnout.plugins.kv_backends.paged.device.slot_mapping import Ints

__all__ = ["LONG", "SHORT", "aligned", "padded_rows", "tiles_of"]


class _Launch(NamedTuple):
    """Tiles on the host; see `Tiles`."""

    chunks: Ints
    offsets: Ints
    rows: int
    parts: int
    tokens: int


SHORT = 64
"""Query rows up to which a chunk is one tile, whose context may be read in parts: decoding, verification."""
LONG = 128
"""Query rows of the tiles of longer chunks, unless the heads are so large that only fewer fit."""
MIN_ROWS = 16
"""The fewest rows that a matrix unit takes."""


def tiles_of(
    chunks: Sequence[Chunk],
    slots: Ints,
    block_size: int,
    share: int,
    device: torch.device,
    prefixes: Sequence[SharedPrefix] = (),
    long: int = LONG,
) -> list[Tiles]:
    """One launch for the short chunks of each height, and one for the long ones, if there are any.

    The height of a chunk's tile depends on that chunk alone, and so does the order in which a GPU adds up.
    Where prefixes are read once, all short chunks have the height of the longest.

    slots: the row of `slots_table` for each chunk's sequence. share: query heads for each KV head. prefixes:
    of short chunks, each to be read once. long: query rows of the tiles of longer chunks.
    """
    lengths = np.fromiter((len(chunk.tokens) for chunk in chunks), np.int32, len(chunks))
    starts = np.fromiter((chunk.start for chunk in chunks), np.int32, len(chunks))
    firsts = np.cumsum(lengths, dtype=np.int32) - lengths
    short = lengths * share <= SHORT
    cells = np.cumsum(lengths * short, dtype=np.int32) - lengths * short
    common = (slots, firsts, starts, lengths, cells)
    launches = []
    skips = _skips(len(chunks), prefixes, block_size)
    heights = np.array([padded_rows(int(length) * share) for length in lengths[short]], np.int32)
    for rows in [int(heights.max())] if prefixes else np.unique(heights).tolist():
        members = _where(short) if prefixes else _where(short)[heights == rows]
        parts = parts_of(int((starts + lengths - skips)[members].max()))
        launches.append(_Launch(members, np.zeros_like(members), rows, parts, int(lengths[short].sum())))
    if not short.all():
        rows = max(long, padded_rows(share))
        of, offsets = _cut(_where(~short), lengths, rows // share)
        order = np.argsort(
            -(starts[of] + offsets), kind="stable"
        )  # longest first, lest the others wait for it
        launches.append(_Launch(of[order], offsets[order], rows, 1, 0))
    tiles = _on_device(common, launches, device)
    if prefixes:
        height = max(long, padded_rows(share))
        prefix = _prefix(prefixes, common, block_size, (share, height), device)
        tiles[0] = tiles[0]._replace(prefix=prefix._replace(skips=to_device(skips, device)))
    return tiles


def _skips(chunks: int, prefixes: Sequence[SharedPrefix], block_size: int) -> Ints:
    """[chunks]: the length of each chunk's shared prefix."""
    skips = np.zeros(chunks, dtype=np.int32)
    for members, blocks in prefixes:
        skips[members] = blocks * block_size
    return skips


def _prefix(
    prefixes: Sequence[SharedPrefix],
    common: Sequence[Ints],
    block_size: int,
    tile: tuple[int, int],
    device: torch.device,
) -> Prefix:
    """The tiles of the prefixes; `skips` is set by the caller.

    common: the step's fields of `Tiles`; tile: query heads for each KV head, and rows.
    """
    share, height = tile
    slots, firsts, _, lengths, cells = common
    counts = np.array([lengths[prefix.members].sum() for prefix in prefixes], dtype=np.int32)
    members = [member for prefix in prefixes for member in prefix.members]
    flat_rows, rows = (_each_token(begins[members], lengths[members]) for begins in (firsts, cells))
    blocks = np.array([prefix.blocks for prefix in prefixes], dtype=np.int32)
    table = slots[[prefix.members[0] for prefix in prefixes], : blocks.max()]
    begins = np.cumsum(counts, dtype=np.int32) - counts
    of, offsets = _cut(np.arange(len(prefixes), dtype=np.int32), counts, height // share)
    shared = (table, begins, blocks * np.int32(block_size), counts, rows)
    launch = _Launch(of, offsets, height, parts_of(int(blocks.max()) * block_size), 0)
    on_device = to_device(flat_rows, device)
    return Prefix(_on_device(shared, [launch], device)[0], on_device, on_device)


def _each_token(begins: Ints, lengths: Ints) -> Ints:
    """[tokens]: the numbers from each of `begins` on, as many as `lengths` says."""
    return ranges(begins, lengths).astype(np.int32)


def _where(true: npt.NDArray[np.bool_]) -> Ints:
    return np.flatnonzero(true).astype(np.int32)


def _cut(members: Ints, lengths: Ints, size: int) -> tuple[Ints, Ints]:
    """The chunk of each tile of at most `size` tokens, and the tile's first token in the chunk."""
    counts = -(-lengths[members] // size)
    of = np.repeat(members, counts)
    return of, _each_token(np.zeros_like(counts), counts) * np.int32(size)


def aligned(size: int) -> int:
    """`size` numbers of 4 bytes, padded to 16 bytes: kernels are compiled again for other alignments."""
    return -(-size // 4) * 4


def padded_rows(rows: int) -> int:
    """The rows of a tile, padded to a power of two."""
    return max(MIN_ROWS, 1 << (rows - 1).bit_length())


def _on_device(common: Sequence[Ints], launches: Sequence[_Launch], device: torch.device) -> list[Tiles]:
    """The tiles on the device, by a single transfer."""
    arrays = [*common, *(array for launch in launches for array in (launch.chunks, launch.offsets))]
    sizes = [aligned(array.size) for array in arrays]
    flat = np.zeros(sum(sizes), dtype=np.int32)
    for piece, array in zip(np.split(flat, np.cumsum(sizes)), arrays, strict=False):
        piece[: array.size] = array.reshape(-1)
    pieces = zip(torch.split(to_device(flat, device), sizes), arrays, strict=True)
    tensors = iter(piece[: array.size].view(array.shape) for piece, array in pieces)
    tables, firsts, starts, lengths, cells = (next(tensors) for _ in common)
    return [
        Tiles(tables, firsts, starts, lengths, cells, next(tensors), next(tensors), *launch[2:])
        for launch in launches
    ]
