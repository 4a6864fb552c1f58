"""The proposer interface: drafts tokens, for speculative decoding.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from turnout.core.interfaces.figures import Figures

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.interfaces.resources import Resources
    from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["DraftRequest", "Proposal", "Proposer"]


class DraftRequest(NamedTuple):
    """Asks for a draft for a sequence."""

    sequence: TokenSequence
    """The sequence to continue."""
    tokens: int
    """How many draft tokens to give at most."""
    needs_probabilities: bool
    """Whether the probabilities of the draft tokens are needed."""


class Proposal(NamedTuple):
    """A draft of what comes next in a sequence."""

    sequence: TokenSequence
    """The sequence of the `DraftRequest`."""
    tokens: list[int]
    """The draft tokens, at most as many as the `DraftRequest` says."""
    probabilities: Tensor | None = None
    """fp32 [tokens, vocab_size]: the distribution that each draft token was drawn from. None: not given."""


class Proposer(ABC):
    """Drafts tokens. A rejected one costs time and never changes the output, since each is verified."""

    def start(self, resources: Resources) -> None:  # noqa: B027
        """Called once, before the first request; may load a model of its own. By default it does nothing."""

    @property
    def cost(self) -> float:
        """First estimate of what one more draft token for a sequence costs, as a share of a step;
        measurements replace it.
        """
        return 0.0

    @abstractmethod
    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        """Returns drafts for the sequences of `requests`. Leave out sequences that you have no draft for.

        Called before a step, at most once. Give `probabilities` where a request `needs_probabilities` and the
        tokens are random, and only there; tokens drawn by `turnout.sampling.draws.draw` for the row are
        accepted more often than others.

        Of a sequence read `tokens` (prompt and output), `id` and `request`. Keep notes by `id`, and drop them
        in `forget`.
        """

    def backlog(self, sequence: TokenSequence) -> int:
        """Returns how many tokens of a sequence to run through a model before it can draft for it, such
        as its prompt.
        """
        return 0

    def forget(self, sequences: Iterable[TokenSequence]) -> None:  # noqa: B027
        """Called with sequences that ended; drop notes about them, if there are any. By default it does
        nothing.
        """

    def figures(self) -> Figures:
        """Returns counters and gauges for `GET /metrics`, asked for a few times a second. None by default."""
        return Figures()
