"""The KV backend of models that keep no keys and values: encoders."""

from __future__ import annotations

from turnout.core.errors import ConfigError
from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend, KVCache, PoolSize
from turnout.core.types.layer_attention import NOT_CAUSAL
from turnout.core.types.model_spec import ModelSpec
from turnout.plugins.kv_backends.none.cache import NoCache

__all__ = ["NoKV"]


class NoKV(KVBackend):
    """Keeps nothing. Encoders get it, whose prompts are computed as a whole; no decoder can do with it."""

    grows_at = 0
    attention_features = frozenset(("scale", "window", "layer_shapes", "value_dim", NOT_CAUSAL))

    def bytes_per_token(self, spec: ModelSpec, itemsize: int) -> int:
        return 0

    def for_model(self, spec: ModelSpec) -> KVBackend:
        if not spec.encoder:
            raise ConfigError(
                f"kv=none keeps no keys and values, which {spec.architecture} reads in every step; it is for "
                "encoders, which get it by themselves: leave --kv out"
            )
        return self

    def positions(self, length: int, step: int | None = None) -> int:
        return 0

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        return NoCache(size.tokens)

    def attention(self, spec: ModelSpec, cache: KVCache, context: ComputeContext) -> AttentionBackend:
        from turnout.plugins.kv_backends.none.attention import EncoderAttention

        return EncoderAttention(spec.layer_attention(), context)
