"""Steps that can be captured: their shapes, and the device memory that all steps of one shape read.

Steps have a shape if all of their sequences compute equally many tokens, as in decoding, or in verifying
equally many draft tokens. They are padded to one of few batch sizes with chunks of no tokens, whose tiles
read and write nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from turnout.core.types.plan import Chunk, StepShape
from turnout.kernels.gpu.staging import to_device
from turnout.kernels.ragged import padded
from turnout.plugins.kv_backends.paged.device.kernels.ragged_attention import (
    FEW_PARTS,
    Tiles,
    most_parts,
    parts_of,
)
from turnout.plugins.kv_backends.paged.device.slot_mapping import Ints
from turnout.plugins.kv_backends.paged.device.tiles import SHORT, aligned, padded_rows
from turnout.plugins.kv_backends.storage.written_slots import written_slots

__all__ = ["ShapedStep", "padded_batch", "padded_parts", "shape_of"]


class EqualChunks(NamedTuple):
    """The kind of a step whose chunks all have the same length."""

    sequences: int
    """Their number, padded."""
    parts: int
    """The most parts that a context is split into."""


def shape_of(chunks: Sequence[Chunk], share: int) -> StepShape | None:
    """The shape of a step; None if its chunks differ in length. share: query heads for each KV head."""
    length = len(chunks[0].tokens)
    if length * share > SHORT or {len(chunk.tokens) for chunk in chunks} != {length}:
        return None
    sequences = padded_batch(len(chunks))
    parts = padded_parts(max([chunk.start for chunk in chunks]) + length)
    return StepShape(sequences * length, EqualChunks(sequences, parts))


def padded_batch(count: int) -> int:
    """The batch size to pad to: 1, 2, 4, 8, then multiples of 8, from 64 on of 16, from 128 on of 32 …"""
    if count <= 8:
        return 1 << (count - 1).bit_length()
    return padded(count, 8)


def padded_parts(context: int) -> int:
    """1, 4, 16 or the most parts that any context is split into: unused parts cost little."""
    parts = parts_of(context)
    return next((few for few in (1, 4, FEW_PARTS) if parts <= few), most_parts())


class ShapedStep:
    """Block tables and tiles of one shape, in device memory with fixed addresses."""

    def __init__(self, shape: StepShape, share: int, blocks: int, device: torch.device) -> None:
        """blocks: the most blocks of a sequence."""
        assert isinstance(shape.kind, EqualChunks)
        sequences = shape.kind.sequences
        length = shape.tokens // sequences
        # First rows, starts, lengths, chunks and offsets of the sequences; then the slots of the tokens.
        column = self._column = aligned(sequences)
        self._numbers = torch.zeros(5 * column + shape.tokens, dtype=torch.int32, device=device)
        pieces = torch.split(self._numbers, [column] * 5 + [shape.tokens])
        firsts, starts, lengths, members, offsets = (piece[:sequences] for piece in pieces[:-1])
        self.written = pieces[-1]
        tables = torch.zeros((sequences, blocks), dtype=torch.int32, device=device)
        rows, parts = padded_rows(length * share), shape.kind.parts
        cells = firsts
        tiles = Tiles(tables, firsts, starts, lengths, cells, members, offsets, rows, parts, shape.tokens)
        self.tiles = tiles

    def fill(
        self,
        chunks: Sequence[Chunk],
        slots: Ints,
        block_size: int,
        device: torch.device,
    ) -> None:
        """Copies a step to the device. slots: the row of `slots_table` for each chunk's sequence."""
        count, length, members = len(chunks), len(chunks[0].tokens), np.arange(self._column)
        lengths = (members < count) * length
        starts = np.zeros(self._column, np.int64)
        starts[:count] = [chunk.start for chunk in chunks]
        columns = np.stack([members * length, starts, lengths, members, np.zeros_like(members)])
        written = written_slots(slots, starts[:count], lengths[:count], block_size)
        padding = np.full(len(self.written) - len(written), -1)
        numbers = np.concatenate([columns.reshape(-1), written, padding])
        to_device(numbers.astype(np.int32), device, self._numbers)
        table = to_device(slots, device)
        self.tiles.tables[:count, : table.shape[1]].copy_(table, non_blocking=True)
