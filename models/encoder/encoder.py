"""The encoder that the families build."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.core.interfaces.models import ModelCapabilities
from turnout.models.decoder.layers import Norm
from turnout.models.decoder.rope import RotaryByLayer, Rotation
from turnout.models.encoder.layers import Embeddings, LayerNorm
from turnout.models.encoder.spec import EncoderSpec

__all__ = ["Encoder", "PostNormLayer", "PreNormLayer"]


class Encoder(nn.Module):
    """An encoder over a flat ragged batch, with a classification head if its checkpoint has one."""

    def __init__(
        self,
        spec: EncoderSpec,
        embeddings: Embeddings,
        layer: Callable[[int], nn.Module],
        *,
        rotary: RotaryByLayer | None = None,
        norm: Norm | None = None,
        head: nn.Module | None = None,
    ) -> None:
        """layer: builds the layer of that number, from 0; norm: the last one, if there is one."""
        super().__init__()
        self.spec = spec
        self.capabilities = ModelCapabilities(picks_rows=True, token_types=spec.types > 1)
        self.embeddings = embeddings
        self.layers = nn.ModuleList(layer(number) for number in range(spec.layers))
        self.rotary = rotary
        self.norm = norm
        self.head = head

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        attend: Attend,
        rows: Tensor | None = None,
        token_types: Tensor | None = None,
    ) -> Tensor:
        """Returns hidden states [tokens, hidden_size], or those of `rows` alone.

        tokens, positions, token_types: int64 [tokens]; rows: int64 [rows], ascending.
        """
        hidden: Tensor = self.embeddings(tokens, positions, token_types)
        rotations = self._rotations(positions, hidden)
        for layer, rotation in zip(self.layers, rotations, strict=True):
            hidden = layer(hidden, rotation, attend, rows if layer is self.layers[-1] else None)
        if self.norm is not None:
            hidden = self.norm(hidden)
        return hidden

    def score(self, pooled: Tensor) -> Tensor:
        """Returns the head's scores, [rows, labels]. pooled: [rows, hidden_size]."""
        assert self.head is not None
        scores: Tensor = self.head(pooled)
        return scores

    def _rotations(self, positions: Tensor, hidden: Tensor) -> list[Rotation | None]:
        if self.rotary is None:
            return [None] * len(self.layers)
        rotations = self.rotary(positions, hidden.dtype)
        return [rotations[which] for which in self.rotary.of_layer]


class PostNormLayer(nn.Module):
    """Attention and MLP, each with a norm behind its residual (BERT)."""

    def __init__(self, spec: EncoderSpec, attention: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm: Norm = LayerNorm(spec.hidden_size, spec.norm_eps, bias=spec.norm_bias)
        self.mlp = mlp
        self.mlp_norm: Norm = LayerNorm(spec.hidden_size, spec.norm_eps, bias=spec.norm_bias)

    def forward(
        self, hidden: Tensor, rotation: Rotation | None, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        """rows: the rows that come out; None: all. `hidden` may be overwritten."""
        mixed = self.attention(hidden, rotation, attend, rows)
        hidden = hidden if rows is None else hidden[rows]
        _, hidden = self.attention_norm.add(hidden, mixed)
        # What the norm returns may lie where the sum did, so it is added to as it is.
        inner = self.mlp(hidden)
        return self.mlp_norm.add(hidden, inner)[1]


class PreNormLayer(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual (ModernBERT)."""

    def __init__(self, spec: EncoderSpec, attention: nn.Module, mlp: nn.Module, *, norms: bool) -> None:
        """norms: whether there is a norm before attention, too; the first layer reads what is normed."""
        super().__init__()
        self.attention_norm: Norm | None = (
            LayerNorm(spec.hidden_size, spec.norm_eps, bias=spec.norm_bias) if norms else None
        )
        self.attention = attention
        self.mlp_norm: Norm = LayerNorm(spec.hidden_size, spec.norm_eps, bias=spec.norm_bias)
        self.mlp = mlp

    def forward(
        self, hidden: Tensor, rotation: Rotation | None, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        """rows: the rows that come out; None: all. `hidden` may be overwritten."""
        normed = hidden if self.attention_norm is None else self.attention_norm(hidden)
        mixed = self.attention(normed, rotation, attend, rows)
        hidden = hidden if rows is None else hidden[rows]
        hidden, normed = self.mlp_norm.add(hidden, mixed)
        total: Tensor = hidden + self.mlp(normed)
        return total
