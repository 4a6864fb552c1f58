"""The KV memory of a backend, and the storage that keeps keys and values in it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.scaled import Fp8Storage, Int8Storage
from turnout.plugins.kv_backends.storage.tensors import PlainStorage, PoolShape, Storage

__all__ = ["Pool", "make_storage"]


@dataclass(frozen=True)
class Pool:
    """The KV memory of a backend."""

    shape: PoolShape
    stored: KVDtype
    swap: int
    """Positions of host memory."""


def make_storage(stored: KVDtype, shape: PoolShape, device: torch.device, compute: torch.dtype) -> Storage:
    """The storage for a dtype. compute: the dtype of keys and values as they are written and read."""
    if stored == "int8":
        return Int8Storage(shape, device, compute)
    if stored == "fp8":
        return Fp8Storage(shape, device, compute)
    return PlainStorage(shape, device, compute, compute if stored == "auto" else torch.bfloat16)
