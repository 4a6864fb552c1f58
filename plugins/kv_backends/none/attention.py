"""Attention of encoders: the keys and values of a step are all that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from turnout.core.interfaces.attention import AttentionCapabilities
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.plan import Move, Plan
from turnout.kernels import cpu_kernels
from turnout.kernels.attention.dense import attend_densely, hidden_from
from turnout.kernels.attention.rule import rule_of
from turnout.kernels.compiled import BlockTables
from turnout.kernels.gpu.staging import to_device
from turnout.kernels.ragged import Numbers, padded
from turnout.plugins.kv_backends.storage.compiled_attention import why_not_compiled

__all__ = ["EncoderAttention"]

LEAST = 16
"""Texts up to so many tokens are padded to one length, where PyTorch attends."""


class EncoderAttention:
    """Attends within each chunk of a step, which is a whole sequence; implements AttentionBackend.

    Compiled kernels read queries, keys and values where the model's linear layer wrote them. Without them
    texts of like length are padded to a batch.
    """

    def __init__(self, rules: Sequence[LayerAttention], context: ComputeContext) -> None:
        self._rules = rules
        self._windows = list(dict.fromkeys(rule.window for rule in rules))
        compiled = cpu_kernels(context.kernels)
        self.summary: Sequence[str] = [] if compiled is None else why_not_compiled(rules)
        self._kernels = None if self.summary else compiled
        self._native = [rule_of(rule) for rule in rules]
        self.capabilities = AttentionCapabilities(whole_texts=self._kernels is not None)
        self._device, self._dtype = context.device, context.dtype
        self._tables: BlockTables | None = None
        self._batches: list[_Batch] = []

    @property
    def texts(self) -> BlockTables:
        assert self._tables is not None  # where there are compiled kernels, `bind` made them
        return self._tables

    def move(self, moves: Sequence[Move]) -> None:
        """Does nothing: nothing is kept that could be moved."""

    def bind(self, plan: Plan) -> None:
        lengths = np.array([len(chunk.tokens) for chunk in plan.chunks])
        rows = lengths.cumsum() - lengths
        if self._kernels is None:
            self._batches = self._batched(rows, lengths)
            return
        # A text is one block, which lies in the batch itself.
        where = [torch.from_numpy(each) for each in (rows, lengths, np.zeros_like(lengths), rows[:, None])]
        self._tables = BlockTables(int(lengths.max()), *where)

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        assert k is not None and v is not None and sinks is None
        if self._kernels is not None:
            return self._kernels.attend(q, k, v, self.texts, self._native[layer])
        rule = self._rules[layer]
        out = q.new_empty(*q.shape[:2], rule.value_dim)
        for batch in self._batches:
            rows, mask = batch.rows, batch.masks[rule.window]
            seen = attend_densely(rule, q[rows], k[rows], v[rows], mask)
            out[rows[batch.real]] = seen[batch.real]
        return out

    def _batched(self, rows: Numbers, lengths: Numbers) -> list[_Batch]:
        sizes = np.array([padded(int(length), LEAST) for length in lengths])
        return [
            self._batch(rows[sizes == size], lengths[sizes == size], int(size)) for size in np.unique(sizes)
        ]

    def _batch(self, firsts: Numbers, lengths: Numbers, size: int) -> _Batch:
        """size: what the texts, of `lengths` tokens from row `firsts` on, are padded to."""
        places = np.arange(size)
        real = to_device(places < lengths[:, None], self._device)
        # Padding repeats the first token of its text, so that no number comes from elsewhere.
        rows = to_device(firsts[:, None] + np.where(places < lengths[:, None], places, 0), self._device)
        positions = torch.arange(size, device=self._device)
        masks = {}
        for window in self._windows:
            hidden = hidden_from(positions[:, None], positions, window, causal=False)
            # A row of padding sees itself, since one that sees nothing has no sums; it is left out later.
            hidden = hidden | (~real[:, None, :] & (positions[:, None] != positions))
            mask = torch.zeros(hidden.shape, dtype=self._dtype, device=self._device)
            masks[window] = mask.masked_fill_(hidden, float("-inf"))[:, None]
        return _Batch(rows, real, masks)


class _Batch(NamedTuple):
    """Texts that are padded to one length."""

    rows: Tensor
    """The rows of their tokens in the flat batch: [texts, length]."""
    real: Tensor
    """Which are no padding: bool, [texts, length]."""
    masks: dict[int | None, Tensor]
    """By a layer's window: what is added to scores, [texts, 1, length, length]."""
