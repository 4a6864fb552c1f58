"""The decoding interface: a decoding strategy turns logits into decisions.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.interfaces.figures import Figures, HasFigures

if TYPE_CHECKING:
    from turnout.core.interfaces.resources import Resources
    from turnout.core.types.decision import Chosen, Completion, Continuation, Retry
    from turnout.core.types.plan import Logits
    from turnout.core.types.request import Request
    from turnout.core.types.request import Sequence as TokenSequence
    from turnout.core.types.sampling_params import SamplingParams

__all__ = ["Decoding"]


class Decoding(ABC):
    """A decoding strategy: turns logits into decisions. It knows sequences, and nothing of KV memory."""

    streams: ClassVar[bool] = True
    """False: sequences may be dropped or forked late, so clients see only those that ended, whole. The
    choices of a `Completion` are always whole."""

    wraps: ClassVar[bool] = False
    """True: it serves requests that other strategies would, as `speculative` does, so it is used only if it
    is chosen by name."""

    extra_args: ClassVar[tuple[str, ...]] = ()
    """Names of request arguments that the strategy reads in `SamplingParams.extra_args`, and validates in
    `check`. Arguments that no plugin names are refused."""

    def check(self, request: Request) -> None:  # noqa: B027
        """Raises RequestError to reject a request that it would serve. Called once, when it arrives."""

    def start(self, resources: Resources) -> None:  # noqa: B027
        """Called once, before the first request; may load a model of its own. By default it does nothing.

        `resources` describes the served model and loads another beside it: ``resources.companion(name)`` has
        a runner and KV memory of its own.
        """

    resumes: ClassVar[bool] = False
    """True: a request goes on from its tokens alone, in another object of the strategy, as it would have gone
    on in this one: what `Request.state` or the strategy itself keeps of it can be had from them. False: when
    an engine dies, requests of which a client has tokens end with an error, as their text might change."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Sampling parameters for requests that set none, if this strategy is chosen with `--decoding`.

        By default there are none.
        """
        return {}

    @property
    def parts(self) -> Iterable[tuple[str, HasFigures]]:
        """Plugins that the strategy asks, such as its proposer, with their kinds: their `figures` are shown.

        Read once, after `start`. By default there are none.
        """
        return ()

    @abstractmethod
    def accepts(self, params: SamplingParams) -> bool:
        """Whether a request with these parameters asks for this strategy.

        The engine asks the strategy of `--decoding`, then the others by name; the first that accepts serves
        the request. Accept only what is yours: `greedy` accepts `params.greedy` (temperature 0), `sampling`
        accepts `params.sampled` (any above), `beam` accepts `params.use_beam_search`.
        """

    def width(self, params: SamplingParams) -> int:
        """Returns how many sequences such a request keeps alive at most; by default `n`."""
        return params.n

    @property
    def rows(self) -> int:
        """Rows of logits that a sequence may have in a step: one, and one more for each draft token.

        Memory is planned by it.
        """
        return 1

    def draft(self, sequences: Sequence[TokenSequence]) -> Iterable[tuple[TokenSequence, list[int]]]:
        """Returns draft tokens for some of `sequences`, which are all one token away from their next logits.

        Draft tokens are computed in the same step as the last real token, as far as there is room, and get
        rows of logits too. By default there are none.
        """
        return ()

    @abstractmethod
    def decide(
        self, requests: Sequence[Request], logits: Logits
    ) -> Iterable[Continuation | Completion | Retry] | Chosen:
        """Returns how the live sequences of each of `requests` continue, or that a request is complete.

        Called once a step, for all requests of this strategy whose sequences all have logits.
        ``logits.of(sequences)`` returns `[rows, vocab_size]` on the device, not to be changed in place: one
        row for a sequence, and one more for each drafted token. For each request, yield continuations, or one
        completion or retry:

        - ``Continuation(parent, tokens)`` continues a live sequence. A parent that is named again forks; a
          sequence that is not named is dropped. `score`, for ranking, is the child's `Sequence.score` at the
          next step, through preemptions too. Fill `details` where `params.logprobs` is set.
        - ``Completion(request, choices)`` ends the request now, with `n` whole answers that the strategy kept
          in `Request.state`, best first; its live sequences are dropped. A `Choice` has the answer's tokens,
          its cumulative log-probability and `finish_reason`.

        - ``Retry(request)`` leaves the request as it is; it is asked about again in the next step, with the
          same logits, at most 64 times in a row. For what is not known yet, such as a check in a thread of
          your own: meanwhile the others go on. Each time costs a token's compute.

        Fewer choices than `n`, or a request without a continuation, are errors. The engine cuts tokens at the
        first stop and at the length. `Request.state` is the strategy's own: it starts as None, survives
        preemptions, and ends with the request.

        If it raises, it is asked again in the same step about each request alone, so that only those end at
        which it fails again. So it must stand being asked twice: change `Request.state` last.

        A strategy that chooses one token for each sequence on the device may return ``Chosen(parents, tokens,
        read)`` without waiting for it, and the next step is computed meanwhile. `tokens` is int64 `[parents]`
        on the device, ``read()`` returns them as a list, and ``details()`` the log-probabilities, where
        wanted. Of a strategy that drafts, and so needs its tokens, they are read at once.
        """

    def forget(self, sequences: Sequence[TokenSequence]) -> None:  # noqa: B027
        """Called with sequences that ended or were dropped; drop notes about them. By default it does
        nothing.
        """

    def counters(self) -> Mapping[str, float]:
        """Returns totals since the start, by name, for `Stats` and, as counters, ``GET /metrics``.

        By default there are none.
        """
        return {}

    def figures(self) -> Figures:
        """Returns counters and gauges for `GET /metrics`, asked for a few times a second. None by default."""
        return Figures()
