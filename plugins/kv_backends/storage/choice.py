"""The storage that a name asks for."""

from __future__ import annotations

import torch

from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.scaled import Fp8Storage, Int8Storage
from turnout.plugins.kv_backends.storage.tensors import PlainStorage, PoolShape, Storage

__all__ = ["make_storage"]


def make_storage(stored: KVDtype, shape: PoolShape, device: torch.device, compute: torch.dtype) -> Storage:
    """`compute`: the dtype of what is written, and of what is read."""
    if stored == "int8":
        return Int8Storage(shape, device, compute)
    if stored == "fp8":
        return Fp8Storage(shape, device, compute)
    return PlainStorage(shape, device, compute, compute if stored == "auto" else torch.bfloat16)
