"""The paged KV backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout.core.errors import ConfigError
from turnout.core.eviction import EvictionPolicy
from turnout.core.interfaces import AttentionBackend, KVBackend, KVCache, PoolSize
from turnout.core.model import ModelSpec
from turnout.plugins.kv_backends.formats import KVDtype, bytes_per_token
from turnout.plugins.kv_backends.paged_cache import PagedCache

if TYPE_CHECKING:
    import torch

__all__ = ["Paged"]


class Paged(KVBackend):
    """Blocks of `block_size` tokens, shared between sequences that start alike, copied on write.

    `prefix_caching`: keep the blocks of ended requests, for requests that start with the same tokens.
    `dtype`: what keys and values are stored in; by default what the model computes in.
    Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023.
    """

    def __init__(self, block_size: int = 16, prefix_caching: bool = True, dtype: KVDtype = "auto") -> None:
        if block_size < 1:
            raise ConfigError(f"block_size must be at least 1 token, not {block_size}")
        self.block_size = self.unit = block_size
        self.prefix_caching = self.evicts = prefix_caching
        self.dtype = dtype

    def bytes_per_token(self, spec: ModelSpec, itemsize: int) -> int:
        return bytes_per_token(self.dtype, spec, itemsize)

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        return PagedCache(size, self.block_size, eviction, prefix_caching=self.prefix_caching)

    def attention(
        self, spec: ModelSpec, cache: KVCache, device: torch.device, dtype: torch.dtype
    ) -> AttentionBackend:
        from turnout.plugins.kv_backends.paged_attention import PagedAttention

        assert isinstance(cache, PagedCache)
        return PagedAttention(spec, cache, device, dtype, self.dtype)
