"""The layers that encoders share. They compute over a flat ragged batch ``[tokens, …]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnout.core.interfaces.attention import Attend
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.layers import Attention, Embedding, GatedMLP, Linear, Norm
from turnout.models.decoder.rope import Rotation
from turnout.models.encoder.spec import EncoderSpec

__all__ = [
    "FUNCTIONS",
    "Embeddings",
    "EncoderAttention",
    "EncoderMLP",
    "GeluGatedMLP",
    "LayerNorm",
    "ScoreLayers",
]

_BY_TANH = partial(functional.gelu, approximate="tanh")
FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": _BY_TANH,
    "gelu_fast": _BY_TANH,
    "gelu_pytorch_tanh": _BY_TANH,
    "relu": functional.relu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}
"""The activations of `spec.ACTIVATIONS`."""


class LayerNorm(Norm):
    """Centres and scales (https://arxiv.org/abs/1607.06450)."""

    def __init__(self, size: int, eps: float, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.bias = nn.Parameter(torch.empty(size)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class Embeddings(nn.Module):
    """What the first layer reads: embedded tokens, with their types and positions if any, normed."""

    def __init__(self, spec: EncoderSpec, *, positions: bool) -> None:
        super().__init__()
        size = spec.embedding_size or spec.hidden_size
        self.words = Embedding(spec.vocab_size, size)
        self.types = Embedding(spec.types, size) if spec.types else None
        rows = spec.first_position + spec.max_positions
        self.positions = Embedding(rows, size) if positions else None
        self.first_position = spec.first_position
        self.norm: Norm = LayerNorm(size, spec.norm_eps, bias=spec.norm_bias)
        self.project = None if size == spec.hidden_size else Linear(size, spec.hidden_size)

    def forward(self, tokens: Tensor, positions: Tensor, token_types: Tensor | None) -> Tensor:
        hidden: Tensor = self.words(tokens)
        if self.types is not None:
            hidden = hidden + self.types(torch.zeros_like(tokens) if token_types is None else token_types)
        if self.positions is not None:
            hidden = hidden + self.positions(positions + self.first_position)
        normed: Tensor = self.norm(hidden)
        return normed if self.project is None else self.project(normed)


class EncoderAttention(Attention):
    """Attention whose queries and keys are turned where the model has rotary positions."""

    def forward(
        self, x: Tensor, rotation: Rotation | None, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        if rotation is not None:
            return super().forward(x, rotation, attend, rows)
        mixed = attend(self.layer, *map(self._heads, (self.q_proj(x), self.k_proj(x), self.v_proj(x))))
        mixed = mixed if rows is None else mixed[rows]
        out: Tensor = self.o_proj(mixed.flatten(1))
        return out


class EncoderMLP(nn.Module):
    """Two linear layers, and an activation between them."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        self.up_proj = Linear(spec.hidden_size, spec.intermediate_size, bias=spec.mlp_bias)
        self.down_proj = Linear(spec.intermediate_size, spec.hidden_size, bias=spec.mlp_bias)
        self.activation = spec.activation

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(FUNCTIONS[self.activation](self.up_proj(x)))
        return out


class GeluGatedMLP(GatedMLP):
    """GeGLU (https://arxiv.org/abs/2002.05202), with GELU as it is defined (ModernBERT)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec, gated=_gelu_gate)


def _gelu_gate(gate: Tensor, up: Tensor) -> Tensor:
    return functional.gelu(gate) * up


class ScoreLayers(nn.Module):
    """A classification head: a linear layer, an activation, a norm if there is one, and a score a label."""

    def __init__(
        self, spec: EncoderSpec, activation: str, *, bias: bool = True, norm: Norm | None = None
    ) -> None:
        super().__init__()
        assert spec.head is not None
        self.dense = Linear(spec.hidden_size, spec.hidden_size, bias=bias)
        self.activation = activation
        self.norm = norm
        self.out = Linear(spec.hidden_size, len(spec.head.labels))

    def forward(self, pooled: Tensor) -> Tensor:
        """Returns scores [rows, labels]. pooled: [rows, hidden_size]."""
        inner = FUNCTIONS[self.activation](self.dense(pooled))
        out: Tensor = self.out(inner if self.norm is None else self.norm(inner))
        return out
