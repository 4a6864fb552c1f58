"""Keeps an output from ending too early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.logits_processors.request_cache import RequestCache

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.plugins.logits_processors.token_index import TokenIds

__all__ = ["MinTokens"]


class MinTokens(LogitsProcessor):
    """Suppresses end-of-sequence and stop tokens until the output has `min_tokens` tokens."""

    masks = True

    def __init__(self) -> None:
        self._ends: RequestCache[TokenIds] = RequestCache()

    def wants(self, params: SamplingParams) -> bool:
        return params.min_tokens > 0

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        from turnout.plugins.logits_processors.token_index import suppress

        short = [
            (number, self._ends.get(row.request, _ends))
            for number, row in enumerate(rows)
            if row.output_length < row.params.min_tokens
        ]
        if short:
            suppress(logits, short)


def _ends(request: Request) -> TokenIds:
    import numpy as np

    return np.array([*request.stop_ids], dtype=np.int64)
