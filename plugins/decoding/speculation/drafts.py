"""A sequence's guesses, as its rows of logits verify them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from turnout.core.interfaces.logits_processor import Row
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["Draft"]


@dataclass(frozen=True)
class Draft:
    """The guesses, maybe none, that were computed in a step for choice `index` of a request."""

    sequence: TokenSequence
    index: int
    guesses: tuple[int, ...] = ()
    probabilities: Tensor | None = None
    """fp32 [guesses, vocab_size]: the distributions they were drawn from, for verification by rejection."""

    @cached_property
    def rows(self) -> list[Row]:
        """The row that each guess is verified by, and the row behind the last guess."""
        return [Row(self.sequence, self.index, self.guesses[:n]) for n in range(len(self.guesses) + 1)]
