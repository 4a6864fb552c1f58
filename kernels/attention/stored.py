"""Where the keys or values of a layer are, and how they are stored, as the compiled kernels take it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["KINDS", "StoredStruct", "StoredVectors", "as_stored"]

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2, torch.float8_e4m3fn: 3}
"""``StoredAs`` of ``native/kernels.h``, by the dtype of numbers."""


class StoredStruct(ctypes.Structure):
    """``StoredVectors`` of ``native/kernels.h``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("numbers", "scales")),
        *((name, ctypes.c_int64) for name in ("line", "step", "scale_line", "kind")),
    )


@dataclass(frozen=True)
class StoredVectors:
    """Keys or values of a layer."""

    numbers: Tensor
    """[slots, heads, dim], each vector contiguous: float32, bfloat16, or codes: int8 or float8_e4m3fn."""
    scales: Tensor | None = None
    """What 1 stands for in each vector of codes: bfloat16 [slots, heads], heads side by side."""

    @cached_property
    def struct(self) -> StoredStruct:
        """Its tensors' addresses, which stay valid as long as this lives."""
        line, step, _ = self.numbers.stride()
        scales, scale_line = (
            (None, 0) if self.scales is None else (self.scales.data_ptr(), self.scales.stride(0))
        )
        return StoredStruct(
            self.numbers.data_ptr(), scales, line, step, scale_line, KINDS[self.numbers.dtype]
        )


def as_stored(vectors: Tensor | StoredVectors) -> StoredVectors:
    """Returns them as they are, or a tensor of float32 or bfloat16, [slots, heads, dim], as such."""
    return vectors if isinstance(vectors, StoredVectors) else StoredVectors(vectors)
