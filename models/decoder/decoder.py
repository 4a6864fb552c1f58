"""The decoder-only transformer that the families build. Submodules have the names of checkpoints."""

from __future__ import annotations

from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.core.interfaces.models import ModelCapabilities
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.layers import Attention, Embedding, GatedMLP, Linear, RMSNorm
from turnout.models.decoder.rope import Rotation, make_rotary

__all__ = ["Decoder", "DecoderLayer", "DecoderStack"]


class Decoder(nn.Module):
    """A causal language model over a flat ragged batch."""

    capabilities = ModelCapabilities(picks_rows=True)

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.model = DecoderStack(spec)
        self.lm_head = Linear(spec.hidden_size, spec.vocab_size, bias=False)
        if spec.tied_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        """Returns hidden states after the final norm, [tokens, hidden_size], or those of `rows` alone.

        tokens, positions: int64 [tokens]; rows: int64 [rows], ascending.
        """
        hidden: Tensor = self.model(tokens, positions, attend, rows)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits [rows, vocab_size], in hidden's dtype. hidden: [rows, hidden_size]."""
        scores: Tensor = self.lm_head(hidden)
        return scores


class DecoderStack(nn.Module):
    """The decoder without its head."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.embed_tokens = Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(spec, layer) for layer in range(spec.layers))
        self.norm = RMSNorm(spec.hidden_size, spec.norm_eps)
        self.rotary = make_rotary(spec.rope, spec.head_dim)

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        hidden: Tensor = self.embed_tokens(tokens)
        rotation = self.rotary(positions, hidden.dtype)
        delta: Tensor | None = None
        for layer in self.layers:
            last = layer is self.layers[-1]
            hidden, delta = layer(hidden, delta, rotation, attend, rows if last else None)
        _, normed = self.norm.add(hidden, delta)
        return normed


class DecoderLayer(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(spec, layer)
        self.mlp = GatedMLP(spec)
        self.input_layernorm = RMSNorm(spec.hidden_size, spec.norm_eps)
        self.post_attention_layernorm = RMSNorm(spec.hidden_size, spec.norm_eps)

    def forward(
        self,
        hidden: Tensor,
        delta: Tensor | None,
        rotation: Rotation,
        attend: Attend,
        rows: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns the residual stream and what is still to be added to it: the next norm adds it.

        rows: the rows that come out; None: all.
        """
        hidden, normed = self.input_layernorm.add(hidden, delta)
        mixed = self.self_attn(normed, rotation, attend, rows)
        hidden = hidden if rows is None else hidden[rows]
        hidden, normed = self.post_attention_layernorm.add(hidden, mixed)
        return hidden, self.mlp(normed)
