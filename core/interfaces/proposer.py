"""The seam of proposers: what guesses ahead for speculative decoding.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.interfaces.resources import Resources
    from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["Proposal", "Proposer", "Wish"]


class Wish(NamedTuple):
    """Guesses are wanted for a sequence."""

    sequence: TokenSequence
    """What to go on from."""
    tokens: int
    """At most so many."""
    weighed: bool
    """The distributions that the guesses are drawn from are of use."""


class Proposal(NamedTuple):
    """What may come next in a sequence."""

    sequence: TokenSequence
    """The wish's."""
    tokens: list[int]
    """The guesses, no more than were wanted."""
    probabilities: Tensor | None = None
    """fp32 [tokens, vocab_size], each row the distribution that the guess was drawn from; None: not told."""


class Proposer(ABC):
    """Guesses ahead. Wrong guesses cost time, never an answer: each is verified."""

    def start(self, resources: Resources) -> None:  # noqa: B027
        """Called once, before the first request; may load a model of its own."""

    @property
    def cost(self) -> float:
        """What another guess for one sequence costs, as a share of a step; the first estimate of it."""
        return 0.0

    @abstractmethod
    def propose(self, wishes: Sequence[Wish]) -> Iterable[Proposal]:
        """Guess for the sequences of `wishes`, or for some of them.

        Called before a step, at most once. Probabilities are given where a wish is `weighed` and the
        guesses are random, and only then; guesses drawn by `plugins.decoding.draw` for the row agree with
        what is drawn there more often than others.
        """

    def backlog(self, sequence: TokenSequence) -> int:
        """Tokens of a sequence to run through a model before the first guess for it, if there is one."""
        return 0

    def forget(self, sequences: Iterable[TokenSequence]) -> None:  # noqa: B027
        """Sequences that ended: give up what is kept of them. One never asked about is fine."""
