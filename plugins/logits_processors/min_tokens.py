"""Keeps an output from ending too early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MinTokens"]


class MinTokens(LogitsProcessor):
    """Suppresses end-of-sequence and stop tokens until the output has `min_tokens` tokens."""

    masks = True

    def wants(self, params: SamplingParams) -> bool:
        return params.min_tokens > 0

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        from turnout.plugins.logits_processors.token_index import suppress

        short = [
            (number, row.request.stop_ids)
            for number, row in enumerate(rows)
            if row.output_length < row.params.min_tokens
        ]
        if short:
            suppress(logits, short)
