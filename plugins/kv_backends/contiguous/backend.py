"""The contiguous KV backend."""

from __future__ import annotations

from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend, KVCache, PoolSize
from turnout.core.types.layer_attention import ATTENTION_FEATURES
from turnout.core.types.model_spec import ModelSpec
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.storage.dtypes import StoredDtype, approximation, bytes_per_token

__all__ = ["Contiguous"]


class Contiguous(KVBackend):
    """Keeps each sequence in a slab as long as it may ever get: the baseline that paging is compared with."""

    grows_at = 0
    attention_features = ATTENTION_FEATURES

    def __init__(self, dtype: StoredDtype = "auto") -> None:
        self.dtype = dtype
        self.approximation = approximation(dtype)

    def bytes_per_token(self, spec: ModelSpec, itemsize: int) -> int:
        return bytes_per_token(self.dtype, spec.layer_attention(), itemsize)

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        return ContiguousCache(size)

    def attention(self, spec: ModelSpec, cache: KVCache, context: ComputeContext) -> AttentionBackend:
        from turnout.plugins.kv_backends.contiguous.attention import ContiguousAttention

        assert isinstance(cache, ContiguousCache)
        return ContiguousAttention(spec, cache, context, self.dtype)
