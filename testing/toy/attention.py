"""A model with seven tokens that attends, so that it reads KV memory through a backend's device half."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.core.types.model_spec import ModelSpec, RopeSpec
from turnout.testing.toy.model import EOS, VOCABULARY

__all__ = ["AttentionToy", "WithoutMemory", "attention_toy", "toy_spec", "without_memory"]

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 2, 2, 1, 8
HIDDEN = HEADS * HEAD_DIM
POSITIONS = 256


def toy_spec() -> ModelSpec:
    return ModelSpec(
        architecture="AttentionToy",
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        layers=LAYERS,
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_positions=POSITIONS,
        norm_eps=1e-6,
        rope=RopeSpec(),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        tied_embeddings=False,
        dtype="float64",
        eos_token_ids=(EOS,),
    )


class AttentionToy(nn.Module):
    """Embeddings of tokens and positions, two layers of attention and a head, all with random weights."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)

        def weight(*shape: int, scale: float = 1.0) -> nn.Parameter:
            drawn = torch.randn(*shape, generator=generator, dtype=torch.float64) * scale
            return nn.Parameter(drawn.to(dtype), requires_grad=False)

        self.tokens = weight(VOCABULARY, HIDDEN)
        self.positions = weight(toy_spec().max_positions, HIDDEN, scale=0.5)
        self.queries = weight(LAYERS, HIDDEN, HEADS * HEAD_DIM, scale=0.4)
        self.keys = weight(LAYERS, HIDDEN, KV_HEADS * HEAD_DIM, scale=0.4)
        self.values = weight(LAYERS, HIDDEN, KV_HEADS * HEAD_DIM, scale=0.4)
        self.head = weight(HIDDEN, VOCABULARY, scale=0.7)

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        hidden = self.tokens[tokens] + self.positions[positions]
        for layer in range(LAYERS):
            q = (hidden @ self.queries[layer]).view(-1, HEADS, HEAD_DIM)
            k = (hidden @ self.keys[layer]).view(-1, KV_HEADS, HEAD_DIM)
            v = (hidden @ self.values[layer]).view(-1, KV_HEADS, HEAD_DIM)
            hidden = torch.tanh(hidden + attend(layer, q, k, v).reshape(-1, HIDDEN))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.head


@cache
def attention_toy(dtype: torch.dtype) -> AttentionToy:
    return AttentionToy(dtype)


class WithoutMemory:
    """The model's logits without KV memory, in float64: every context is computed from its first token."""

    def __init__(
        self, seen: Sequence[Sequence[int]], stored: Callable[[Tensor], Tensor] = lambda vectors: vectors
    ) -> None:
        """seen: for each position, those that its query attends to. stored: keys or values as read."""
        self._stored = stored
        self._visible = torch.zeros(len(seen), len(seen), dtype=torch.bool)
        for position, places in enumerate(seen):
            self._visible[position, list(places)] = True
        self._known: dict[tuple[int, ...], list[float]] = {}

    def __call__(self, context: Sequence[int]) -> list[float]:
        """The logits after `context`, [VOCABULARY]."""
        tokens = tuple(context)
        if tokens not in self._known:
            rows = self._logits(tokens)
            self._known.update((tokens[: place + 1], row) for place, row in enumerate(rows))
        return self._known[tokens]

    def _logits(self, tokens: tuple[int, ...]) -> list[list[float]]:
        model, length = attention_toy(torch.float64), len(tokens)
        visible = self._visible[:length, :length]

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            k, v = self._stored(k), self._stored(v)
            scores = torch.einsum("qhd,kd->hqk", q, k[:, 0]) / HEAD_DIM**0.5
            weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
            return torch.einsum("hqk,kd->qhd", weights, v[:, 0])

        with torch.inference_mode():
            hidden = model(torch.tensor(tokens), torch.arange(length), attend)
            rows: list[list[float]] = model.logits(hidden).tolist()
        return rows


@cache
def without_memory(seen: tuple[tuple[int, ...], ...]) -> WithoutMemory:
    """A shared instance for each pattern of attention, which remembers what it computed from test to test."""
    return WithoutMemory(seen)
