"""The proposer interface: guesses tokens ahead, for speculative decoding.

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

__all__ = ["DraftRequest", "Proposal", "Proposer"]


class DraftRequest(NamedTuple):
    """Asks for guesses for a sequence."""

    sequence: TokenSequence
    """The sequence to continue."""
    tokens: int
    """How many guesses to give at most."""
    needs_probabilities: bool
    """Whether the probabilities of the guesses are needed."""


class Proposal(NamedTuple):
    """Guesses of what comes next in a sequence."""

    sequence: TokenSequence
    """The sequence of the `DraftRequest`."""
    tokens: list[int]
    """The guesses, at most as many as the `DraftRequest` says."""
    probabilities: Tensor | None = None
    """fp32 [tokens, vocab_size]: for each guess, the distribution that it was drawn from. None: not given."""


class Proposer(ABC):
    """Guesses ahead. A wrong guess costs time and never changes the output, since each guess is verified."""

    def start(self, resources: Resources) -> None:  # noqa: B027
        """Called once, before the first request; may load a model of its own."""

    @property
    def cost(self) -> float:
        """The first estimate of what one more guess for one sequence costs, as a share of a step."""
        return 0.0

    @abstractmethod
    def propose(self, wishes: Sequence[DraftRequest]) -> Iterable[Proposal]:
        """Returns guesses for the sequences of `wishes`, or for some of them.

        Called before a step, at most once. Probabilities are given if a request `needs_probabilities` and the
        guesses are random, and only then; guesses drawn by `plugins.decoding.draw` for the row agree with
        what is drawn there more often than others.
        """

    def backlog(self, sequence: TokenSequence) -> int:
        """Returns how many tokens of a sequence the proposer's model must compute before its first guess."""
        return 0

    def forget(self, sequences: Iterable[TokenSequence]) -> None:  # noqa: B027
        """Called with sequences that ended; drop what is kept about them, if anything is."""
