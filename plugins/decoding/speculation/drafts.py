"""A sequence's guesses, on their way to be verified."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from turnout.core.interfaces.logits_processor import Row
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["Draft"]


@dataclass(frozen=True)
class Draft:
    """The guesses for a sequence that were computed, maybe none, for choice `index` of its request."""

    sequence: TokenSequence
    index: int
    guesses: tuple[int, ...] = ()
    probabilities: Tensor | None = None
    """fp32 [guesses, vocab_size]: the distributions they were drawn from, for verification by rejection."""

    @cached_property
    def rows(self) -> list[Row]:
        """One for each guess, and one behind the last."""
        return [Row(self.sequence, self.index, self.guesses[:n]) for n in range(len(self.guesses) + 1)]
