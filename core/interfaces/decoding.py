"""The decoding interface: a strategy turns logits into decisions.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from turnout.core.interfaces.resources import Resources
    from turnout.core.types.decision import Chosen, Completion, Continuation
    from turnout.core.types.plan import Logits
    from turnout.core.types.request import Request
    from turnout.core.types.request import Sequence as TokenSequence
    from turnout.core.types.sampling_params import SamplingParams

__all__ = ["Decoding"]


class Decoding(ABC):
    """Turns logits into decisions. Knows sequences, never KV memory."""

    streams: ClassVar[bool] = True
    """False: sequences may be dropped or forked late, so clients see only finished ones, whole."""

    wraps: ClassVar[bool] = False
    """True: it serves what others would, so it is on offer only where it is asked for by name."""

    def start(self, resources: Resources) -> None:  # noqa: B027
        """Called once, before the first request; may load a model of its own."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Sampling parameters that `--decoding` with this strategy gives to requests that set none."""
        return {}

    @abstractmethod
    def accepts(self, params: SamplingParams) -> bool:
        """Does a request with these parameters ask for this strategy?"""

    def width(self, params: SamplingParams) -> int:
        """How many sequences such a request keeps alive at most."""
        return params.n

    @property
    def rows(self) -> int:
        """Rows of logits that a sequence may have in a step: one, and one more for each guess."""
        return 1

    def draft(self, sequences: Sequence[TokenSequence]) -> Iterable[tuple[TokenSequence, list[int]]]:
        """Guess ahead for some of `sequences`, all one token away from their next logits.

        Guessed tokens are computed in the same step as the last real one, and get logits rows too.
        """
        return ()

    @abstractmethod
    def decide(
        self, requests: Sequence[Request], logits: Logits
    ) -> Iterable[Continuation | Completion] | Chosen:
        """Continue the live sequences of each of `requests`, or complete it.

        Called once a step for all requests of this strategy whose sequences all have logits. A
        sequence named as a parent once continues in place; named again it forks; not named it is
        dropped. Tokens are cut at the first stop by the engine. A `Completion` ends the request with
        choices that the strategy kept itself, in `Request.state`; fewer than `n` are the request's error.

        `Chosen` where it is enough to know that a token was chosen for each: the next step need not wait.
        """

    def forget(self, sequences: Sequence[TokenSequence]) -> None:  # noqa: B027
        """Sequences that ended, however they did, or were dropped: give up what is kept of them."""

    def counters(self) -> Mapping[str, float]:
        """Totals since the start, by name, as the engine's `Stats` report them."""
        return {}
