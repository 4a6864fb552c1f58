"""The decoder-only transformer that the families build. Submodules have the names of checkpoints.

A family puts together what is particular to it: a layer (`DecoderLayer`, or one of `residuals.py`) of some
attention and some MLP, and what happens before the first layer and after the head.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.core.interfaces.models import ModelCapabilities
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.layers import Attention, Embedding, GatedMLP, Linear, Norm, NormMaker, RMSNorm
from turnout.models.decoder.rope import RotaryByLayer, Rotation, make_rotary

__all__ = ["Decoder", "DecoderLayer", "DecoderStack", "plain_layer"]

LayerMaker = Callable[[int], nn.Module]
"""Builds the layer of that number, from 0. Its forward has the arguments of `DecoderLayer.forward`."""


class Decoder(nn.Module):
    """A causal language model over a flat ragged batch."""

    def __init__(
        self,
        spec: ModelSpec,
        layer: LayerMaker | None = None,
        *,
        norm: NormMaker = RMSNorm,
        rotary: RotaryByLayer | None = None,
        before: nn.Module | None = None,
        after: nn.Module | None = None,
        wide: tuple[str, ...] = (),
    ) -> None:
        """layer: None: `plain_layer`; norm: the last one; rotary: None: `spec.rope` in all layers.

        before: what the embedded tokens go through, with their positions; after: what logits go through;
        wide: parts of the names of parameters that stay in float32.
        """
        super().__init__()
        self.capabilities = ModelCapabilities(picks_rows=True, float32=("e_score_correction_bias", *wide))
        self.model = DecoderStack(spec, layer or plain_layer(spec), norm, rotary, before)
        self.lm_head = Linear(spec.hidden_size, spec.vocab_size, bias=False)
        self.after = after
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

    def drop_language_head(self) -> None:
        """Called before there are weights; `logits` is not called after that."""
        del self.lm_head

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits [rows, vocab_size], in hidden's dtype. hidden: [rows, hidden_size]."""
        scores: Tensor = self.lm_head(hidden)
        if self.after is not None:
            scores = self.after(scores)
        return scores


class DecoderStack(nn.Module):
    """The decoder without its head."""

    def __init__(
        self,
        spec: ModelSpec,
        layer: LayerMaker,
        norm: NormMaker = RMSNorm,
        rotary: RotaryByLayer | None = None,
        before: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embed_tokens = Embedding(spec.vocab_size, spec.hidden_size)
        self.before = before
        self.layers = nn.ModuleList(layer(number) for number in range(spec.layers))
        self.norm: Norm = norm(spec.hidden_size, spec.norm_eps)
        self.rotary = rotary or RotaryByLayer([make_rotary(spec.rope, spec.head_dim)], [0] * spec.layers)

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        hidden, delta = self.through(self.embed(tokens, positions), positions, attend, rows)
        _, normed = self.norm.add(hidden, delta)
        return normed

    def through(
        self, hidden: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns what the layers make of `hidden`, of `rows` alone, and what is still to be added to it."""
        rotations = self.rotary(positions, hidden.dtype)
        delta: Tensor | None = None
        last = len(self.layers) - 1
        for number, (layer, which) in enumerate(zip(self.layers, self.rotary.of_layer, strict=True)):
            picked = rows if number == last else None
            hidden, delta = layer(hidden, delta, rotations[which], attend, picked)
        return hidden, delta

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Returns what the first layer reads, [tokens, hidden_size]."""
        hidden: Tensor = self.embed_tokens(tokens)
        if self.before is not None:
            hidden = self.before(hidden, positions)
        return hidden


class DecoderLayer(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual."""

    def __init__(
        self, spec: ModelSpec, attention: nn.Module, mlp: nn.Module, norm: NormMaker = RMSNorm
    ) -> None:
        super().__init__()
        self.self_attn = attention
        self.mlp = mlp
        self.input_layernorm: Norm = norm(spec.hidden_size, spec.norm_eps)
        self.post_attention_layernorm: Norm = norm(spec.hidden_size, spec.norm_eps)

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


def plain_layer(spec: ModelSpec) -> LayerMaker:
    """Returns what builds the layers of Llama."""
    return lambda number: DecoderLayer(spec, Attention(spec, number), GatedMLP(spec))
