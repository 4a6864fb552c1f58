"""Attention as its definition has it, dense and sequence by sequence: what load-time checks compute with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels.attention.dense import hidden_from

__all__ = ["DenseAttend", "attended"]


class DenseAttend:
    """Attends over sequences whose keys and values it keeps. Implements Attend.

    `lengths` says before each step how many tokens of it each sequence has.
    """

    def __init__(self, rules: Sequence[LayerAttention], sequences: int) -> None:
        self._rules = rules
        self._kept: list[dict[int, tuple[Tensor, Tensor]]] = [{} for _ in range(sequences)]
        self.lengths: Sequence[int] = ()

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        rule, out, start = self._rules[layer], [], 0
        for kept, length in zip(self._kept, self.lengths, strict=True):
            rows = slice(start, start + length)
            if k is not None and v is not None:
                old = kept.get(layer, (k[:0], v[:0]))
                kept[layer] = torch.cat([old[0], k[rows]]), torch.cat([old[1], v[rows]])
            keys, values = kept[layer if rule.kv_from is None else rule.kv_from]
            out.append(attended(q[rows], keys, values, rule, sinks))
            start += length
        return torch.cat(out)


def attended(q: Tensor, k: Tensor, v: Tensor, rule: LayerAttention, sinks: Tensor | None) -> Tensor:
    """Returns [queries, heads, value_dim] of the last positions of one sequence. A rank has some heads."""
    share = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * rule.effective_scale
    if rule.softcap is not None:
        scores = torch.tanh(scores / rule.softcap) * rule.softcap
    keys, queries = torch.arange(len(k)), torch.arange(len(k) - len(q), len(k))[:, None]
    scores = scores.masked_fill(hidden_from(queries, keys, rule.window, rule.causal), float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.view(-1, 1, 1).expand(-1, len(q), 1)], -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., : len(k)], v)
