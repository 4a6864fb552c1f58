"""Weights in MXFP4 (https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf).

::

    NAME_blocks  uint8 […, outputs, inputs / 32, 16]   a byte: codes of inputs 2 j (low) and 2 j + 1 (high)
    NAME_scales  uint8 […, outputs, inputs / 32]       the scale is 2^(byte - 127)

A code is one of 16 numbers, halves at the finest. Twice that number is an integer of at most 12, so that
8-bit blocks with scales in float16 hold a weight exactly, unless its scale is beyond float16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from turnout.core.errors import ModelError
from turnout.core.types.placement import Index
from turnout.models.checkpoints.readers.reader import WeightFile

__all__ = ["Mxfp4File", "decoded", "fits_eight_bits", "in_eight_bits", "with_mxfp4"]

BLOCKS, SCALES = "_blocks", "_scales"
NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
PAIRS = torch.tensor([(NUMBERS[byte & 15], NUMBERS[byte >> 4]) for byte in range(256)], dtype=torch.bfloat16)
"""The two numbers of a byte."""
FACTORS = torch.tensor([2.0 ** (byte - 127) for byte in range(255)] + [float("nan")], dtype=torch.float32)
NO_NUMBER = 255
"""The scale that says NaN."""
LOWEST, HIGHEST = 104, 143
"""Scales of which a half is a number of float16."""


def with_mxfp4(files: Sequence[WeightFile]) -> list[WeightFile]:
    """Returns `files`, those with blocks of MXFP4 as files of the numbers. Scales may lie in another file."""
    scales = {key: file for file in files for key in file.names() if key.endswith(SCALES)}
    found = []
    for file in files:
        blocks = {key: f"{key.removesuffix(BLOCKS)}{SCALES}" for key in file.names() if _is_blocks(file, key)}
        for key, scale in blocks.items():
            _check_scales(file, key, scales.get(scale), scale)
        found.append({key: (scales[scale], scale) for key, scale in blocks.items()})
    hidden = {scale for blocks in found for _, scale in blocks.values()}
    if not hidden:
        return list(files)
    return [Mxfp4File(file, blocks, hidden) for file, blocks in zip(files, found, strict=True)]


def _is_blocks(file: WeightFile, key: str) -> bool:
    return key.endswith(BLOCKS) and file.shape(key)[-1:] == (16,)


def _check_scales(file: WeightFile, key: str, of_scales: WeightFile | None, scale: str) -> None:
    """Raises ModelError unless there is a scale for each 16 bytes."""
    if of_scales is None:
        raise ModelError(f"{file.path} has blocks of MXFP4 whose scales {scale!r} are missing")
    shape, stored = file.shape(key), of_scales.shape(scale)
    if len(shape) < 3 or stored != shape[:-1]:
        raise ModelError(
            f"{of_scales.path}: {scale!r} has shape {list(stored)}; of {key!r}, {list(shape)}, "
            f"{list(shape[:-1])} is expected, with inputs and outputs; fetch it again"
        )


class Mxfp4File(WeightFile):
    """Gives the numbers for which blocks and scales stand, under the blocks' name: […, outputs, inputs]."""

    def __init__(
        self, file: WeightFile, blocks: Mapping[str, tuple[WeightFile, str]], hidden: set[str]
    ) -> None:
        """blocks: where the scales of blocks are, by the blocks' names; hidden: names of scales."""
        super().__init__(Path(file.path))
        self._file, self._blocks, self._hidden = file, blocks, hidden

    def names(self) -> list[str]:
        return [key for key in self._file.names() if key not in self._hidden]

    def shape(self, key: str) -> tuple[int, ...]:
        stored = self._file.shape(key)
        return (*stored[:-2], 32 * stored[-2]) if key in self._blocks else stored

    @contextmanager
    def read(self, key: str, take: Index = ()) -> Iterator[Tensor]:
        if key not in self._blocks:
            with self._file.read(key, take) as stored:
                yield stored
            return
        rows = len(self.shape(key)) - 1
        numbers = decoded(*self._stored(key, take[:rows]))
        yield numbers[..., take[rows]] if len(take) > rows else numbers

    def blocks(self, key: str) -> str | None:
        if key not in self._blocks:
            return self._file.blocks(key)
        file, name = self._blocks[key]
        with file.read(name) as scales:
            self._check_bytes(name, scales)
            if not _beyond(scales).any():
                return "q8_0"
            with self._file.read(key) as blocks:
                self._check_bytes(key, blocks)
                return "q8_0" if fits_eight_bits(blocks, scales) else None

    def read_blocks(self, key: str, take: Index = ()) -> Tensor:
        if key not in self._blocks:
            return self._file.read_blocks(key, take)
        return in_eight_bits(*self._stored(key, take))

    def _stored(self, key: str, take: Index) -> tuple[Tensor, Tensor]:
        """Returns blocks and scales of the rows `take`, in memory of their own."""
        file, name = self._blocks[key]
        with self._file.read(key, take[:1]) as blocks, file.read(name, take[:1]) as scales:
            self._check_bytes(key, blocks)
            self._check_bytes(name, scales)
            if bool((scales == NO_NUMBER).any()):
                raise ModelError(f"{file.path}: {name!r} holds scales that are NaN; fetch it again")
            first = (slice(None),) if isinstance(next(iter(take), None), slice) else ()
            return blocks[(*first, *take[1:])].clone(), scales[(*first, *take[1:])].clone()

    def _check_bytes(self, key: str, stored: Tensor) -> None:
        if stored.dtype != torch.uint8:
            raise ModelError(
                f"{self.path}: {key!r} is {stored.dtype}, uint8 is expected of MXFP4; fetch it again"
            )


def decoded(blocks: Tensor, scales: Tensor) -> Tensor:
    """Returns bfloat16 […, inputs], which holds all numbers exactly. blocks: […, groups, 16]."""
    numbers = _looked_up(PAIRS, blocks)
    return numbers.mul_(FACTORS.bfloat16()[scales.int()][..., None]).flatten(-2)


def fits_eight_bits(blocks: Tensor, scales: Tensor) -> bool:
    """Says whether groups with scales beyond float16 have zeros alone. blocks: […, groups, 16]."""
    return not bool((blocks[_beyond(scales)] & 0x77).any())


def _beyond(scales: Tensor) -> Tensor:
    return (scales < LOWEST) | (scales > HIGHEST)


def in_eight_bits(blocks: Tensor, scales: Tensor) -> Tensor:
    """Returns the same numbers in Q8_0's blocks: uint8 [outputs, bytes]. blocks: [outputs, groups, 16]."""
    # Groups with scales beyond float16 have zeros alone.
    halves = (FACTORS / 2)[scales.clamp(LOWEST, HIGHEST).int()].half()
    out = torch.empty((*scales.shape, 34), dtype=torch.uint8)
    out[..., :2] = halves[..., None].view(torch.uint8)
    out[..., 2:] = _looked_up((PAIRS * 2).to(torch.int8), blocks).view(torch.uint8)
    return out.flatten(-2)


def _looked_up(pairs: Tensor, blocks: Tensor) -> Tensor:
    """Returns both numbers of each byte, […, 32]. A pair is looked up as one integer, which is faster."""
    whole = pairs.view({1: torch.int16, 2: torch.int32}[pairs.element_size()]).squeeze(-1)
    found = whole.index_select(0, blocks.flatten().int()).view(pairs.dtype)
    return found.view(*blocks.shape[:-1], 2 * blocks.shape[-1])
