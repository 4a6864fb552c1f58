"""Reads GGUF files, llama.cpp's format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from turnout.core.errors import ModelError
from turnout.core.types.placement import Index
from turnout.models.checkpoints.readers.mxfp4 import fits_eight_bits, in_eight_bits
from turnout.models.checkpoints.readers.reader import WeightFile
from turnout.models.gguf.given import given_name
from turnout.models.gguf.header import GGUFTensor, read_header
from turnout.models.gguf.numbers import dequantized, mxfp4_blocks
from turnout.models.gguf.summary import HELD
from turnout.models.gguf.tensors import StoredTensor, stored_tensors

__all__ = ["GGUFFile"]


class GGUFFile(WeightFile):
    """A GGUF file. Only the bytes of a tensor are read when the tensor is; nothing is mapped."""

    def __init__(self, path: Path) -> None:
        super().__init__(given_name(path))

    @property
    def configuration(self) -> str:
        return "the metadata"

    def stored_name(self, key: str) -> str:
        return self._tensors[key].stored.name

    def names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, key: str) -> tuple[int, ...]:
        return self._tensors[key].shape

    def blocks(self, key: str) -> str | None:
        tensor = self._tensors[key]
        if tensor.values is not None or len(tensor.shape) != 2:
            return None
        kind = tensor.stored.type
        return "q8_0" if kind == "mxfp4" else kind if kind in HELD else None

    @contextmanager
    def read(self, key: str, take: Index = ()) -> Iterator[Tensor]:
        tensor = self._tensors[key]
        rows = self._rows(tensor.stored)
        if tensor.values is not None:
            yield self._expansion(rows, tensor, tensor.values)[take]
            return
        if len(tensor.stored.shape) == 1:
            numbers = tensor.in_order(dequantized(rows, tensor.stored.type).flatten())
        else:
            numbers = dequantized(tensor.in_order(rows), tensor.stored.type).view(tensor.stored.shape)
        yield (numbers - tensor.more if tensor.more else numbers)[take]

    def read_blocks(self, key: str, take: Index = ()) -> Tensor:
        tensor = self._tensors[key]
        rows = tensor.in_order(self._rows(tensor.stored))[take].contiguous()
        return self._in_eight_bits(key, rows) if tensor.stored.type == "mxfp4" else rows

    @cached_property
    def _tensors(self) -> dict[str, StoredTensor]:
        return {tensor.name: tensor for tensor in stored_tensors(read_header(self.path))}

    def _expansion(self, rows: Tensor, keys: StoredTensor, values: GGUFTensor) -> Tensor:
        """Returns what expands keys and values, as Hugging Face's checkpoints have it: both of each head."""
        by_head = dequantized(rows, keys.stored.type).view(keys.stored.shape).transpose(1, 2)
        more = dequantized(self._rows(values), values.type).view(values.shape)
        return torch.cat([by_head, more.to(by_head.dtype)], dim=1).flatten(0, 1)

    def _in_eight_bits(self, key: str, rows: Tensor) -> Tensor:
        """Returns Q8_0's blocks of the same numbers as MXFP4's in `rows`."""
        blocks, scales = mxfp4_blocks(rows)
        if fits_eight_bits(blocks, scales):
            return in_eight_bits(blocks, scales)
        raise ModelError(f"{self.path}: {key!r} has scales beyond float16's; take the safetensors checkpoint")

    def _rows(self, stored: GGUFTensor) -> Tensor:
        """Returns the bytes of all rows: uint8 [rows, bytes]."""
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
