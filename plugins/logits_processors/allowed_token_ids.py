"""Restricts the choice to some tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AllowedTokenIds"]


class AllowedTokenIds(LogitsProcessor):
    """Forbids every token that is not among a request's `allowed_token_ids`."""

    masks = True

    def wants(self, params: SamplingParams) -> bool:
        return params.allowed_token_ids is not None

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        from turnout.plugins.logits_processors.token_index import token_index

        allowed_ids = ((number, row.params.allowed_token_ids or ()) for number, row in enumerate(rows))
        index = token_index(allowed_ids, logits.device)
        allowed = logits[index]
        # Minus infinity leaves a distribution, since at least one token is allowed.
        logits.fill_(float("-inf"))
        logits[index] = allowed
