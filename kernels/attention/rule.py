"""How a layer attends, as the compiled kernels take it."""

from __future__ import annotations

import ctypes
from functools import cache

from turnout.core.types.layer_attention import LayerAttention

__all__ = ["AttentionRule", "plain_rule", "rule_of"]


class AttentionRule(ctypes.Structure):
    """The structure of ``native/kernels.h``."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int
    """0: none."""
    causal: int
    scale: float
    softcap: float
    """0: none."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("heads", "kv_heads", "key_dim", "value_dim", "window", "causal")
        ),
        *((name, ctypes.c_double) for name in ("scale", "softcap")),
    )


def rule_of(layer: LayerAttention) -> AttentionRule:
    """Returns a layer's rule. Sinks are given with each call, and where its keys and values lie, too."""
    shape = layer.heads, layer.kv_heads, layer.key_dim, layer.value_dim
    return AttentionRule(*shape, layer.window or 0, layer.causal, layer.effective_scale, layer.softcap or 0.0)


@cache
def plain_rule(heads: int, kv_heads: int, dim: int) -> AttentionRule:
    """Returns the rule of layers without any other."""
    return rule_of(LayerAttention(heads, kv_heads, dim, dim))
