"""Attention that norms queries and keys before it rotates them."""

from __future__ import annotations

from torch import Tensor, nn

from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.layers import Attention, Norm, NormMaker, RMSNorm

__all__ = ["HeadNormedAttention", "HeadNorms", "WideNormedAttention", "WideNorms"]


class HeadNorms(nn.Module):
    """Norms each head by itself."""

    q_norm: Norm
    k_norm: Norm

    def prepared(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self._by_head(self.q_norm, q), self._by_head(self.k_norm, k)

    def _by_head(self, norm: Norm, x: Tensor) -> Tensor:
        normed: Tensor = norm(x.reshape(-1, x.shape[2]))
        return normed.view(x.shape)


class WideNorms(nn.Module):
    """Norms all heads of a token together."""

    q_norm: Norm
    k_norm: Norm

    def prepared(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.q_norm(q.flatten(1)).view(q.shape), self.k_norm(k.flatten(1)).view(k.shape)


class HeadNormedAttention(HeadNorms, Attention):
    """Attention with a norm over each head of queries and keys (Qwen3, Gemma 3)."""

    def __init__(self, spec: ModelSpec, layer: int, norm: NormMaker = RMSNorm) -> None:
        Attention.__init__(self, spec, layer)
        self.q_norm = norm(spec.head_dim, spec.norm_eps)
        self.k_norm = norm(spec.head_dim, spec.norm_eps)


class WideNormedAttention(WideNorms, Attention):
    """Attention with a norm over all queries of a token, and one over all its keys (OLMo 2)."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        Attention.__init__(self, spec, layer)
        self.q_norm = RMSNorm(spec.heads * spec.head_dim, spec.norm_eps)
        self.k_norm = RMSNorm(spec.kv_heads * spec.head_dim, spec.norm_eps)
