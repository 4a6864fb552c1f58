"""Reads GGUF files, llama.cpp's format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from turnout.core.errors import ModelError
from turnout.core.types.placement import Index
from turnout.models.checkpoints.readers.reader import WeightFile
from turnout.models.gguf.header import read_header
from turnout.models.gguf.numbers import dequantized
from turnout.models.gguf.summary import HELD
from turnout.models.gguf.tensors import StoredTensor, stored_tensors

__all__ = ["GGUFFile"]


class GGUFFile(WeightFile):
    """A GGUF file. Only the bytes of a tensor are read when the tensor is; nothing is mapped."""

    def names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, key: str) -> tuple[int, ...]:
        return self._tensors[key].stored.shape

    def blocks(self, key: str) -> str | None:
        tensor = self._tensors[key].stored
        return tensor.type if tensor.type in HELD and len(tensor.shape) == 2 else None

    @contextmanager
    def read(self, key: str, take: Index = ()) -> Iterator[Tensor]:
        tensor = self._tensors[key]
        rows = self._rows(tensor)
        if len(tensor.stored.shape) == 1:
            numbers = tensor.in_order(dequantized(rows, tensor.stored.type).flatten())
        else:
            numbers = dequantized(tensor.in_order(rows), tensor.stored.type).view(tensor.stored.shape)
        yield (numbers - tensor.more if tensor.more else numbers)[take]

    def read_blocks(self, key: str, take: Index = ()) -> Tensor:
        tensor = self._tensors[key]
        return tensor.in_order(self._rows(tensor))[take].contiguous()

    @cached_property
    def _tensors(self) -> dict[str, StoredTensor]:
        return {tensor.name: tensor for tensor in stored_tensors(read_header(self.path))}

    def _rows(self, tensor: StoredTensor) -> Tensor:
        """Returns the bytes of all rows: uint8 [rows, bytes]."""
        stored = tensor.stored
        data = torch.empty(stored.size, dtype=torch.uint8)
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(stored.start)
                found, view = 0, data.numpy().data
                while found < stored.size and (now := file.readinto(view[found:])):
                    found += now
        except OSError as error:
            raise ModelError(f"{self.path} cannot be read: {error.strerror}; fetch it again") from error
        if found < stored.size:
            raise ModelError(f"{self.path} is cut short in the tensor {stored.name!r}; fetch it again")
        return data.view(prod(stored.shape[:-1]), stored.row_bytes)
