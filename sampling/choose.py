"""The token that each row's own request chooses: the likeliest, or one drawn."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from turnout.core.interfaces.logits_processor import Row
from turnout.kernels.gpu.staging import gather_rows, scatter_rows
from turnout.sampling.argmax import likeliest
from turnout.sampling.draws import draw

__all__ = ["choose"]


def choose(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """logits: fp32 [rows, vocab_size], adjusted already; returns int64 [rows]."""
    random = [number for number, row in enumerate(rows) if not row.params.greedy]
    if len(random) == len(rows):
        return draw(logits, rows)
    tokens = likeliest(logits)
    if random:
        scatter_rows(tokens, random, draw(gather_rows(logits, random), [rows[number] for number in random]))
    return tokens
