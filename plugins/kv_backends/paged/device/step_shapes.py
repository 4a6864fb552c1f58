"""Steps that may be captured: what shape they have, and the device memory that all steps of one shape read.

Steps are alike in which everybody computes as many tokens: decoding, or verifying as many guesses. They are
padded to one of few batch sizes with chunks of no tokens, whose tiles read nothing and write nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from turnout.core.types.plan import Chunk, StepShape
from turnout.kernels.gpu.staging import to_device
from turnout.kernels.ragged import padded
from turnout.plugins.kv_backends.paged.device.bound_attention import BoundAttention
from turnout.plugins.kv_backends.paged.device.kernels.ragged_attention import Tiles, most_parts, parts_of
from turnout.plugins.kv_backends.paged.device.slot_mapping import Ints
from turnout.plugins.kv_backends.paged.device.tiles import SHORT, aligned, padded_rows
from turnout.plugins.kv_backends.storage.written_slots import written_slots

__all__ = ["ShapedStep", "padded_batch", "padded_parts", "shape_of"]


class Uniform(NamedTuple):
    """The kind of a step whose chunks are all of one length."""

    sequences: int
    """Padded."""
    parts: int
    """Into how many a context may be split."""


def shape_of(chunks: Sequence[Chunk], share: int) -> StepShape | None:
    """None for steps that are not alike. share: query heads for each KV head."""
    length = len(chunks[0].tokens)
    if length * share > SHORT or any(len(chunk.tokens) != length for chunk in chunks):
        return None
    sequences = padded_batch(len(chunks))
    parts = padded_parts(max(chunk.end for chunk in chunks))
    return StepShape(sequences * length, Uniform(sequences, parts))


def padded_batch(count: int) -> int:
    """1, 2, 4, 8, then multiples of 8, from 64 on of 16, from 128 on of 32 and so on."""
    if count <= 8:
        return 1 << (count - 1).bit_length()
    return padded(count, 8)


def padded_parts(context: int) -> int:
    """1, 4 or as many as any context is split into: those that a context does not have cost little."""
    parts = parts_of(context)
    return next((few for few in (1, 4) if parts <= few), most_parts())


class ShapedStep:
    """Block tables and tiles of one shape, in memory that stays where it is."""

    def __init__(self, shape: StepShape, share: int, blocks: int, device: torch.device) -> None:
        """blocks: most of a sequence."""
        assert isinstance(shape.kind, Uniform)
        sequences = shape.kind.sequences
        length = shape.tokens // sequences
        # firsts, starts, lengths, chunks and offsets of the sequences, then the slots of the tokens
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
        self.attention: BoundAttention | None = None

    def fill(
        self,
        chunks: Sequence[Chunk],
        slots: Ints,
        block_size: int,
        device: torch.device,
    ) -> None:
        """slots: of each chunk's sequence, as `slots_table` has them."""
        count, length, members = len(chunks), len(chunks[0].tokens), np.arange(self._column)
        lengths = (members < count) * length
        starts = np.zeros(self._column, np.int64)
        starts[:count] = [chunk.start for chunk in chunks]
        columns = np.stack([members * length, starts, lengths, members, np.zeros_like(members)])
        written = written_slots(slots, starts[:count], lengths[:count], block_size)
        nobodys = np.full(len(self.written) - len(written), -1)
        numbers = np.concatenate([columns.reshape(-1), written, nobodys])
        to_device(numbers.astype(np.int32), device, self._numbers)
        table = to_device(slots, device)
        self.tiles.tables[:count, : table.shape[1]].copy_(table, non_blocking=True)
