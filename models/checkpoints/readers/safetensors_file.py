"""Reads safetensors files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from turnout.core.types.placement import Index
from turnout.models.checkpoints.readers.reader import WeightFile
from turnout.models.checkpoints.readers.safetensors_open import open_tensors

__all__ = ["SafetensorsFile"]

MAPPED = 2**24
"""Bytes that are read before the file is opened anew."""


class SafetensorsFile(WeightFile):
    """A safetensors file, opened anew from time to time: mapped pages count as this process's memory.

    It is not opened for each tensor, because that takes a millisecond for each thousand tensors of the file,
    as experts are.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._tensors: Any = None
        self._mapped = 0

    def names(self) -> list[str]:
        with open_tensors(self.path) as tensors:
            return list(tensors.offset_keys())

    def shape(self, key: str) -> tuple[int, ...]:
        return tuple(self._opened().get_slice(key).get_shape())

    @contextmanager
    def read(self, key: str, take: Index = ()) -> Iterator[Tensor]:
        tensors = self._opened()
        stored: Tensor = tensors.get_slice(key)[take] if take else tensors.get_tensor(key)
        self._mapped += stored.nbytes
        yield stored
        if self._mapped >= MAPPED:
            self._tensors, self._mapped = None, 0

    def _opened(self) -> Any:
        if self._tensors is None:
            self._tensors = open_tensors(self.path)
        return self._tensors
