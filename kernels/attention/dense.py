"""Attention in plain PyTorch, by the rule of a layer: what compiled kernels compute faster."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention

__all__ = ["DenseAttention", "attend_densely", "hidden_from"]

FOLD_LIMIT = 16
"""Queries of a head up to which the heads of a KV head are folded into rows: K and V need not be expanded,
but the mask is larger."""
SCORES = 1 << 24
"""The most scores that are in memory at once, where PyTorch has no attention that keeps them to itself."""


def hidden_from(queries: Tensor, positions: Tensor, window: int | None, causal: bool = True) -> Tensor:
    """Returns which positions are hidden from which queries: bool, of both shapes broadcast.

    queries, positions: positions in the sequence, int64; window, causal: as `LayerAttention` has them.
    """
    if not causal:
        apart = (positions - queries).abs()
        return apart >= window if window is not None else torch.zeros_like(apart, dtype=torch.bool)
    hidden = positions > queries
    return hidden if window is None else hidden | (positions <= queries - window)


def attend_densely(
    rule: LayerAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor | None = None
) -> Tensor:
    """Returns what q sees of v: [batch, queries, heads, value_dim].

    q: [batch, queries, heads, key_dim]; k: [batch, positions, kv_heads, key_dim]; v: the same with value_dim.
    mask: what is added to scores, [batch, 1, queries, positions]; None: every query sees every position.
    sinks: float32 [heads].
    """
    batch, length, heads, _ = q.shape
    kv_heads = k.shape[2]
    share = heads // kv_heads
    weighs = rule.softcap is not None or sinks is not None
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    if length > FOLD_LIMIT and not weighs:
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k, v, attn_mask=mask, scale=rule.scale, enable_gqa=share > 1
        )
        return out.transpose(1, 2)
    folded = q.reshape(batch, length, kv_heads, share, -1).permute(0, 2, 3, 1, 4)
    folded = folded.reshape(batch, kv_heads, share * length, -1)
    if mask is not None and length > 1:
        mask = mask.repeat(1, 1, share, 1)
    if weighs:
        rows = None if sinks is None else sinks.view(kv_heads, share, 1).expand(-1, -1, length).flatten(1)
        out = _weighed(rule, folded, k, v, mask, rows)
    else:
        out = F.scaled_dot_product_attention(folded, k, v, attn_mask=mask, scale=rule.scale)
    return out.view(batch, kv_heads, share, length, -1).permute(0, 3, 1, 2, 4).flatten(2, 3)


def _weighed(
    rule: LayerAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor | None
) -> Tensor:
    """What PyTorch's own attention cannot do: a soft cap of scores, and sinks.

    q: [batch, kv_heads, rows, key_dim]; k, v: [batch, kv_heads, positions, …]; mask: [batch, 1, rows or 1,
    positions]; sinks: [kv_heads, rows].
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    turned, values = k.to(wide).transpose(-1, -2), v.to(wide)
    rows = max(1, SCORES // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
    pieces = []
    for first in range(0, q.shape[2], rows):
        some = slice(first, first + rows)
        scores = q[:, :, some].to(wide) @ turned * rule.effective_scale
        if rule.softcap is not None:
            scores = scores.div_(rule.softcap).tanh_().mul_(rule.softcap)
        if mask is not None:
            scores += mask if mask.shape[2] == 1 else mask[:, :, some]
        if sinks is None:
            weights = scores.softmax(-1)
        else:
            sink = sinks[None, :, some, None].to(wide).expand(*scores.shape[:-1], 1)
            weights = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
        pieces.append((weights @ values).to(q.dtype))
    return torch.cat(pieces, 2)


class DenseAttention:
    """Attention over one text, without any KV memory: a forward of a model. Implements Attend."""

    def __init__(self, rules: Sequence[LayerAttention] = ()) -> None:
        """rules: by layer; empty: all attend plainly."""
        self._rules = rules
        self._read = {rule.kv_from for rule in rules if rule.kv_from is not None}
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        rule = self._rules[layer] if self._rules else _plain(q, k)
        if k is None:
            assert rule.kv_from is not None
            k, v = self._kept[rule.kv_from]
        elif v is None:
            v = k[..., : rule.value_dim]
        assert v is not None
        if layer in self._read:
            self._kept[layer] = k, v
        places = torch.arange(len(q), device=q.device)
        hidden = hidden_from(places[:, None], places, rule.window, rule.causal)
        mask = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device).masked_fill_(hidden, -torch.inf)
        return attend_densely(rule, q[None], k[None], v[None], mask[None, None], sinks)[0]


def _plain(q: Tensor, k: Tensor | None) -> LayerAttention:
    assert k is not None, "a layer without keys of its own needs a rule"
    (_, heads, dim), kv_heads = q.shape, k.shape[1]
    return LayerAttention(heads, kv_heads, dim, dim)
