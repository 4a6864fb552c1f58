"""Reads safetensors files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from turnout.core.types.placement import Index
from turnout.models.checkpoints.readers.reader import WeightFile
from turnout.models.checkpoints.readers.safetensors_open import open_tensors

__all__ = ["SafetensorsFile"]


class SafetensorsFile(WeightFile):
    """A safetensors file, opened for each tensor: mapped pages count as this process's memory."""

    def names(self) -> list[str]:
        with open_tensors(self.path) as tensors:
            return list(tensors.offset_keys())

    def shape(self, key: str) -> tuple[int, ...]:
        with open_tensors(self.path) as tensors:
            return tuple(tensors.get_slice(key).get_shape())

    @contextmanager
    def read(self, key: str, take: Index = ()) -> Iterator[Tensor]:
        with open_tensors(self.path) as tensors:
            yield tensors.get_slice(key)[take] if take else tensors.get_tensor(key)
