"""A KV backend with a sliding window and attention sinks, whose sequences take constant memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from turnout import EvictionPolicy, KVBackend, hookimpl
from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.types.model_spec import ModelSpec
from turnout_streaming_kv.rows import Layout, Rows

turnout_hook_api = 1


class StreamingKV(KVBackend):
    """Keeps the first `sinks` positions of a sequence and the latest `window`, and forgets those between.

    Source: Xiao et al., "Efficient streaming language models with attention sinks", ICLR 2024. Models put
    much attention on the first tokens, whatever these are, so a window without them breaks down. Unlike in
    the paper, positions are those in the text, since a backend receives keys that are already rotated. So
    contexts are not longer than the model's, but each takes no more memory than a row. Answers differ from
    the model's once a context exceeds both.
    """

    def __init__(
        self,
        sinks: Annotated[int, Field(ge=0, description="Number of first tokens to keep for ever.")] = 4,
        window: Annotated[int, Field(ge=1, description="Number of latest tokens to keep.")] = 1020,
    ) -> None:
        self.layout = Layout(sinks, window)
        self.unit = self.layout.length
        self.approximation = f"sinks={sinks},window={window}"

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        return Rows(size.tokens // self.layout.length, self.layout)

    def attention(self, spec: ModelSpec, cache: KVCache, context: ComputeContext) -> AttentionBackend:
        from turnout_streaming_kv.attention import WindowAttention

        assert isinstance(cache, Rows)
        return WindowAttention(spec, cache, context)


@hookimpl
def register_kv_backends(register):
    register("streaming", StreamingKV)
