"""The layers that decoder-only families share. They compute over a flat ragged batch ``[tokens, …]``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnout.core.interfaces.attention import Attend
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.gates import Gate, silu_gate
from turnout.models.decoder.rope import Rotation

__all__ = [
    "Attention",
    "Embedding",
    "GatedMLP",
    "Linear",
    "Norm",
    "PlainMLP",
    "RMSNorm",
    "SinkAttention",
    "Sinks",
]


class Linear(nn.Linear):
    """A linear layer whose weights are left for the checkpoint to fill.

    Drawing random ones costs time on a real device, and seconds of imports on "meta".
    """

    def reset_parameters(self) -> None:
        pass


def is_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Says whether it is a linear layer and no more: PhiMoE's router, a subclass, chooses experts too."""
    return isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward


class Embedding(nn.Embedding):
    """An embedding whose weights are left for the checkpoint to fill."""

    def reset_parameters(self) -> None:
        pass


class Norm(nn.Module):
    """A norm of the last dimension."""

    def add(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns x + delta and its norm. The sum may be written into x; delta None: nothing is added."""
        total = x if delta is None else x + delta
        return total, self(total)


NormMaker = Callable[[int, float], Norm]
"""Builds a norm of so many numbers, with that epsilon."""


class RMSNorm(Norm):
    """The root mean square norm, computed in float32; the weight is applied in the input's dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class GatedMLP(nn.Module):
    """An activated gate beside the up projection, and what goes down."""

    def __init__(self, spec: ModelSpec, inner: int | None = None, gated: Gate = silu_gate) -> None:
        """inner: the width inside; None: `spec.intermediate_size`."""
        super().__init__()
        inner = inner or spec.intermediate_size
        self.gate_proj: nn.Linear = Linear(spec.hidden_size, inner, bias=spec.mlp_bias)
        self.up_proj: nn.Linear = Linear(spec.hidden_size, inner, bias=spec.mlp_bias)
        self.down_proj: nn.Linear = Linear(inner, spec.hidden_size, bias=spec.mlp_bias)
        self.gated = gated

    @classmethod
    def of(cls, gate_proj: nn.Linear, up_proj: nn.Linear, down_proj: nn.Linear, gated: Gate) -> GatedMLP:
        """Returns one of linear layers that exist."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.gate_proj, made.up_proj, made.down_proj, made.gated = gate_proj, up_proj, down_proj, gated
        return made

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(self.gated(self.gate_proj(x), self.up_proj(x)))
        return out


class PlainMLP(nn.Module):
    """An MLP without a gate: GELU, by its approximation with tanh, between two products (GPT-2)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.up_proj = Linear(spec.hidden_size, spec.intermediate_size, bias=spec.mlp_bias)
        self.down_proj = Linear(spec.intermediate_size, spec.hidden_size, bias=spec.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.gelu(self.up_proj(x), approximate="tanh"))
        return out


class Attention(nn.Module):
    """Grouped-query attention: it projects and rotates; `attend` keeps keys and values, and attends."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = spec.head_dim
        queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        self.q_proj = Linear(spec.hidden_size, queries, bias=spec.qkv_bias)
        self.k_proj = Linear(spec.hidden_size, keys, bias=spec.qkv_bias)
        self.v_proj = Linear(spec.hidden_size, keys, bias=spec.qkv_bias)
        self.o_proj = Linear(queries, spec.hidden_size, bias=spec.output_bias)

    def forward(self, x: Tensor, rotation: Rotation, attend: Attend, rows: Tensor | None = None) -> Tensor:
        """Returns [tokens, hidden_size], or the `rows` of it. x: [tokens, hidden_size], normed."""
        q, k = self.prepared(self._heads(self.q_proj(x)), self._heads(self.k_proj(x)))
        v = self._heads(self.v_proj(x))
        mixed = attend(self.layer, rotation.apply(q), rotation.apply(k), v, *self.passed())
        mixed = mixed if rows is None else mixed[rows]
        out: Tensor = self.o_proj(mixed.flatten(1))
        return out

    def prepared(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Returns queries and keys, [tokens, heads, head_dim], as they are to be rotated."""
        return q, k

    def passed(self) -> tuple[Tensor, ...]:
        """Returns what attention is given beside queries, keys and values."""
        return ()

    def _heads(self, x: Tensor) -> Tensor:
        # The number of heads is read off the tensor: a sharded projection yields fewer.
        return x.reshape(x.shape[0], x.shape[1] // self.head_dim, self.head_dim)


class Sinks(nn.Module):
    """Passes a learned score of each head to attention."""

    sinks: nn.Parameter

    def passed(self) -> tuple[Tensor, ...]:
        return (self.sinks.float(),)


class SinkAttention(Sinks, Attention):
    """Attention with sinks."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        Attention.__init__(self, spec, layer)
        self.sinks = nn.Parameter(torch.empty(spec.heads))
