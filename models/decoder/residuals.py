"""Layers whose norms and residuals are not where Llama has them. Each takes the place of `DecoderLayer`."""

from __future__ import annotations

from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.layers import Norm, NormMaker, RMSNorm
from turnout.models.decoder.rope import Rotation

__all__ = ["PostNormLayer", "SandwichLayer", "ScaledLayer"]


def _sum(hidden: Tensor, delta: Tensor | None) -> Tensor:
    return hidden if delta is None else hidden + delta


class PostNormLayer(nn.Module):
    """Norms what attention and MLP put out, not what they read (OLMo 2, https://arxiv.org/abs/2501.00656)."""

    def __init__(
        self, spec: ModelSpec, attention: nn.Module, mlp: nn.Module, norm: NormMaker = RMSNorm
    ) -> None:
        super().__init__()
        self.self_attn, self.mlp = attention, mlp
        self.post_attention_layernorm: Norm = norm(spec.hidden_size, spec.norm_eps)
        self.post_feedforward_layernorm: Norm = norm(spec.hidden_size, spec.norm_eps)

    def forward(
        self,
        hidden: Tensor,
        delta: Tensor | None,
        rotation: Rotation,
        attend: Attend,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        hidden = _sum(hidden, delta)
        mixed = self.self_attn(hidden, rotation, attend, rows)
        hidden = hidden if rows is None else hidden[rows]
        hidden = hidden + self.post_attention_layernorm(mixed)
        return hidden, self.post_feedforward_layernorm(self.mlp(hidden))


class SandwichLayer(nn.Module):
    """Norms what attention and MLP read, and what they put out (Gemma 2, https://arxiv.org/abs/2408.00118)."""

    def __init__(
        self, spec: ModelSpec, attention: nn.Module, mlp: nn.Module, norm: NormMaker = RMSNorm
    ) -> None:
        super().__init__()
        self.self_attn, self.mlp = attention, mlp
        self.input_layernorm: Norm = norm(spec.hidden_size, spec.norm_eps)
        self.post_attention_layernorm: Norm = norm(spec.hidden_size, spec.norm_eps)
        self.pre_feedforward_layernorm: Norm = norm(spec.hidden_size, spec.norm_eps)
        self.post_feedforward_layernorm: Norm = norm(spec.hidden_size, spec.norm_eps)

    def forward(
        self,
        hidden: Tensor,
        delta: Tensor | None,
        rotation: Rotation,
        attend: Attend,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        hidden, normed = self.input_layernorm.add(hidden, delta)
        mixed = self.post_attention_layernorm(self.self_attn(normed, rotation, attend, rows))
        hidden = hidden if rows is None else hidden[rows]
        hidden, normed = self.pre_feedforward_layernorm.add(hidden, mixed)
        return hidden, self.post_feedforward_layernorm(self.mlp(normed))


class ScaledLayer(nn.Module):
    """Llama's layer, with what is added to the residual stream multiplied by a factor (Granite)."""

    def __init__(self, spec: ModelSpec, attention: nn.Module, mlp: nn.Module, factor: float) -> None:
        super().__init__()
        self.self_attn, self.mlp, self.factor = attention, mlp, factor
        self.input_layernorm: Norm = RMSNorm(spec.hidden_size, spec.norm_eps)
        self.post_attention_layernorm: Norm = RMSNorm(spec.hidden_size, spec.norm_eps)

    def forward(
        self,
        hidden: Tensor,
        delta: Tensor | None,
        rotation: Rotation,
        attend: Attend,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        hidden, normed = self.input_layernorm.add(hidden, delta)
        mixed = self.self_attn(normed, rotation, attend, rows) * self.factor
        hidden = hidden if rows is None else hidden[rows]
        hidden, normed = self.post_attention_layernorm.add(hidden, mixed)
        return hidden, self.mlp(normed) * self.factor
