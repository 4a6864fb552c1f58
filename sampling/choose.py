"""The next token of each row: the most likely for a greedy request, a drawn one for a sampled request."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from turnout.core.interfaces.logits_processor import Row
from turnout.kernels.gpu.staging import gather_rows, scatter_rows
from turnout.sampling.argmax import argmax
from turnout.sampling.draws import draw

__all__ = ["choose"]


def choose(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """Returns int64 [rows]. logits: fp32 [rows, vocab_size], adjusted by the logits processors."""
    sampled = [number for number, row in enumerate(rows) if not row.params.greedy]
    if len(sampled) == len(rows):
        return draw(logits, rows)
    tokens = argmax(logits)
    if sampled:
        scatter_rows(
            tokens, sampled, draw(gather_rows(logits, sampled), [rows[number] for number in sampled])
        )
    return tokens
