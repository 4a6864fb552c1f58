"""The two halves of the chosen KV backend, as often as they are needed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from turnout.core.errors import blaming
from turnout.core.eviction import EvictionPolicy
from turnout.core.interfaces import AttentionBackend, KVBackend, KVCache, PoolSize
from turnout.core.model import ModelSpec

__all__ = ["KVHalves"]


@dataclass(frozen=True)
class KVHalves:
    """Builds them for one model on one device. What a backend raises names it."""

    backend: KVBackend
    name: str
    spec: ModelSpec
    device: torch.device
    dtype: torch.dtype

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        with self.blamed():
            return self.backend.cache(size, eviction)

    def attention(self, cache: KVCache) -> AttentionBackend:
        with self.blamed():
            return self.backend.attention(self.spec, cache, self.device, self.dtype)

    def blamed(self) -> AbstractContextManager[None]:
        """For what calls a half that is built."""
        return blaming(f"kv backend {self.name!r}")
