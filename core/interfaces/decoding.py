"""The decoding interface: a decoding strategy turns logits into decisions.

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
    """A decoding strategy: turns logits into decisions. It knows sequences, and nothing of KV memory."""

    streams: ClassVar[bool] = True
    """False: sequences may be dropped or forked late, so a client gets only finished ones, as a whole."""

    wraps: ClassVar[bool] = False
    """True: it serves what other strategies would, so it is used only if it is chosen by name."""

    def start(self, resources: Resources) -> None:  # noqa: B027
        """Called once, before the first request; may load a model of its own."""

    resumes: ClassVar[bool] = False
    """True: a request goes on from its tokens alone, in another object of the strategy, as it would have gone
    on in this one: what `Request.state` or the strategy itself keeps of it can be had from them. False: when
    an engine dies, requests of which a client has tokens end with an error, as their text might change."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Default sampling parameters of requests, if this strategy is chosen with `--decoding`."""
        return {}

    @abstractmethod
    def accepts(self, params: SamplingParams) -> bool:
        """Whether this strategy serves requests with these parameters."""

    def width(self, params: SamplingParams) -> int:
        """Returns how many live sequences such a request has at most."""
        return params.n

    @property
    def rows(self) -> int:
        """Rows of logits that a sequence may have in a step: one, and another for each guess."""
        return 1

    def draft(self, sequences: Sequence[TokenSequence]) -> Iterable[tuple[TokenSequence, list[int]]]:
        """Returns guesses for some of `sequences`, which are all one token away from their next logits.

        Guessed tokens are computed in the same step as the last real token, and get rows of logits too.
        """
        return ()

    @abstractmethod
    def decide(
        self, requests: Sequence[Request], logits: Logits
    ) -> Iterable[Continuation | Completion] | Chosen:
        """Returns how the live sequences of each of `requests` continue, or that a request is complete.

        Called once a step, for all requests of this strategy whose sequences all have logits. A sequence
        named as a parent once continues in place; one named again forks; one not named is dropped. The
        engine cuts tokens at the first stop. A `Completion` ends the request with choices that the strategy
        kept itself, in `Request.state`; the request fails if these are fewer than `n`.

        If it raises, it is asked again in the same step about each request alone, so that only those end at
        which it fails again. It must stand being asked twice: change `Request.state` last.

        `Chosen`, if each sequence gets a token and its value may be read later: the next step need not wait.
        """

    def forget(self, sequences: Sequence[TokenSequence]) -> None:  # noqa: B027
        """Called with sequences that ended or were dropped; drop what is kept about them."""

    def counters(self) -> Mapping[str, float]:
        """Returns totals since the start, by name, for the engine's `Stats`."""
        return {}
