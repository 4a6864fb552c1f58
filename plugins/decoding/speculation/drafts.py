"""A sequence's draft tokens, as its rows of logits verify them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from turnout.core.interfaces.logits_processor import Row
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["Draft"]


@dataclass(frozen=True)
class Draft:
    """The draft tokens, maybe none, that were computed in a step for choice `index` of a request."""

    sequence: TokenSequence
    index: int
    tokens: tuple[int, ...] = ()
    probabilities: Tensor | None = None
    """fp32 [tokens, vocab_size]: the distributions they were drawn from, for verification by rejection."""

    @cached_property
    def rows(self) -> list[Row]:
        """The row that each draft token is verified by, and the row behind the last draft token."""
        return [Row(self.sequence, self.index, self.tokens[:n]) for n in range(len(self.tokens) + 1)]
