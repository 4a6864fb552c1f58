"""Presence, frequency and repetition penalties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.core.interfaces.logits_processor import LogitsProcessor, Row, ServedModel
from turnout.core.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.plugins.logits_processors.token_counts import TokenCounts

__all__ = ["Penalties"]


class Penalties(LogitsProcessor):
    """Makes tokens that occurred already less likely, or more likely.

    The repetition penalty divides the positive logits of tokens in prompt and output, and multiplies the
    others (Keskar et al. 2019). Presence and frequency penalties are subtracted for tokens in the output, as
    OpenAI defines them.
    """

    def start(self, model: ServedModel) -> None:
        from turnout.plugins.logits_processors.token_counts import TokenCounts

        self._counts: TokenCounts = TokenCounts()

    def wants(self, params: SamplingParams) -> bool:
        return bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1)

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        import torch

        from turnout.sampling.distributions import column

        tokens, counts = self._counts.table(rows, logits.device)
        values = logits.gather(1, tokens)
        factor = column((row.params.repetition_penalty for row in rows), logits)
        values = torch.where(values > 0, values / factor, values * factor)
        frequency = column((row.params.frequency_penalty for row in rows), logits)
        presence = column((row.params.presence_penalty for row in rows), logits)
        logits.scatter_(1, tokens, values - (frequency * counts + presence * (counts > 0)))
