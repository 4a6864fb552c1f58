"""The attention implementation that transformers' layers call: it hands them on to what attends in a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from torch import Tensor, nn
from transformers import AttentionInterface

__all__ = ["IMPLEMENTATION", "LayerCalls", "attending", "attention"]

IMPLEMENTATION = "turnout"
"""The name of the implementation in transformers. It has no function for masks, so models make none."""


class LayerCalls(Protocol):
    """What computes the attention of transformers' layers."""

    def attend_layer(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sinks: Tensor | None,
        options: dict[str, object],
    ) -> Tensor:
        """Returns [1, tokens, heads, value_dim].

        module: the layer, whose ``layer_idx`` says which; query: [1, heads, tokens, key_dim]; key and value:
        [1, kv_heads, tokens, …]; sinks: [heads]; options: what else the layer passed.
        """
        ...


_calls: ContextVar[LayerCalls] = ContextVar("calls of transformers' attention")


@contextmanager
def attending(calls: LayerCalls) -> Iterator[None]:
    """Lets `calls` compute the attention of models that run inside the block."""
    token = _calls.set(calls)
    try:
        yield
    finally:
        _calls.reset(token)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object = None,
    s_aux: Tensor | None = None,
    **options: object,
) -> tuple[Tensor, None]:
    """Has the signature of transformers' attention functions; returns no attention weights."""
    options["attention_mask"] = attention_mask
    return _calls.get().attend_layer(module, query, key, value, s_aux, options), None


AttentionInterface.register(IMPLEMENTATION, attention)
