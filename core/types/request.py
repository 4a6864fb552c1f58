"""The nouns of serving: what a client asked, and the token sequences that answer it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, Literal, Protocol

import msgspec

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.views import RequestView

__all__ = ["Request", "RequestSpec", "RequestStatus", "Resumption", "Sequence", "Timing"]


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """Where to go on with a request that another engine had begun.

    A token depends on the request's seed and its position alone, so what follows is what would have followed.
    """

    choices: list[tuple[int, list[int]]]
    """Index and output so far of each choice that has not ended; empty: begin anew."""
    cached_tokens: int = 0
    """As the other engine reported it."""
    first_token: float | None = None
    """When the first token came, in seconds on the engines' common clock."""
    interrupted: list[float] = []
    """When engines were lost; counts as preemption."""


class RequestSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client asked, as plain data: this is what travels to the engine."""

    id: str
    """As ``RequestView.id``."""
    prompt: list[int]
    """Token ids."""
    params: SamplingParams
    """How its tokens are chosen, and when they end."""
    seed: int
    """Concrete, so that a request gives the same tokens wherever and however often it runs."""
    arrival: float | None = None
    """Seconds on the engine's clock; None: when the engine reads it."""
    priority: int = 0
    """Lower is more urgent, for policies that look at it."""
    client: str = ""
    """Whose request this is, for policies that share between clients."""
    deadline: float | None = None
    """Seconds after arrival by which it should be finished, for policies that look at it."""
    ttft_deadline: float | None = None
    """Seconds after arrival by which its first token should be there."""
    timing: bool = False
    """Report its `Timing` with the last delta."""
    cache_salt: str = ""
    """Only requests of the same salt share computed prefixes with it."""
    resume: Resumption | None = None
    """It was admitted already, by an engine that is gone."""


class Timing(msgspec.Struct, kw_only=True):
    """When things happened to a request, in seconds on the engine's clock."""

    arrival: float
    """When it came."""
    scheduled: float | None = None
    """First admitted."""
    first_token: float | None = None
    """When its first token came; none where it got none."""
    finished: float | None = None
    """When it ended."""
    preempted: list[float] = []
    """Each time that it was."""


_sequence_ids = count()


@dataclass(eq=False, slots=True, weakref_slot=True)
class Sequence:
    """One token path of a request.

    ::

        tokens   [ prompt .............. | output ...... ]
        draft                                            [ guesses ]
        computed [ KV is final ........... )
                                           [ pending ............. )
    """

    request: Request
    """The request that the sequence belongs to."""
    tokens: list[int]
    """Prompt and output. Where steps overlap the last one may be below 0, not known yet, when KV memory is
    reserved; never when a strategy decides or guesses, and never of what is committed."""
    index: int = 0
    """Which of the request's choices this is."""
    computed: int = 0
    """Positions whose KV is final; what lies above is garbage to overwrite."""
    draft: list[int] = field(default_factory=list)
    """Guesses to be verified."""
    held: bool = False
    """It holds KV memory."""
    logprob: float = 0.0
    """Cumulative, over the output, as far as its decoding keeps one."""
    score: float = 0.0
    """What its decoding ranks it by, as its last continuation said."""
    details: list[TokenLogprobs] = field(default_factory=list)
    """One for each output token, where the request wants them."""
    id: int = field(default_factory=lambda: next(_sequence_ids))
    """The same as long as it lives, never used again."""

    @property
    def end(self) -> int:
        """Length with the drafts."""
        return len(self.tokens) + len(self.draft)

    def fork(self) -> Sequence:
        """A sibling that goes on from here; its KV memory is the caller's business."""
        request = self.request
        request.forks += 1
        return Sequence(
            request,
            list(self.tokens),
            index=request.forks,
            computed=self.computed,
            draft=list(self.draft),
            held=self.held,
            logprob=self.logprob,
            details=list(self.details),
        )

    @property
    def output(self) -> list[int]:
        """The tokens behind the prompt; a copy."""
        return self.tokens[len(self.request.prompt) :]

    @property
    def room(self) -> int:
        """Tokens it may still produce."""
        return self.request.limit - len(self.tokens)


class Strategy(Protocol):
    """What a request must know of the decoding strategy that serves it: every `Decoding` is one."""

    streams: ClassVar[bool]

    def width(self, params: SamplingParams) -> int: ...


class AdjustsRows(Protocol):
    """What a request must know of a logits processor that it wants: every `ActiveProcessor` is one."""

    title: str
    place: int


RequestStatus = Literal["running", "waiting", "finishing", "gone"]
"""``finishing``: its last tokens are chosen, and not known yet."""


class Request:
    """A request inside the engine: its spec, how it is decoded, and the sequences that live."""

    __slots__ = (
        "__weakref__",
        "cached_tokens",
        "decoding",
        "fault",
        "forks",
        "limit",
        "live",
        "most_computed",
        "output_tokens",
        "processors",
        "prompt_scores",
        "spec",
        "state",
        "status",
        "stop_ids",
        "tells_prompt",
        "timing",
        "view",
        "width",
    )

    def __init__(
        self,
        spec: RequestSpec,
        decoding: Strategy,
        arrival: float,
        limit: int,
        stop_ids: frozenset[int],
    ):
        self.spec = spec
        """What the client asked."""
        self.decoding = decoding
        self.processors: tuple[AdjustsRows, ...] = ()
        """The logits processors that it wants."""
        self.fault: str | None = None
        """Why it cannot go on, where a logits processor failed at it."""
        self.timing = Timing(arrival=arrival)
        self.limit = limit
        """Length at which its sequences end: prompt plus max_tokens."""
        self.stop_ids = stop_ids
        self.width = decoding.width(spec.params)
        """Sequences it keeps alive at most."""
        self.forks = 0
        """Sequences forked from others so far; numbers the next one."""
        self.live: tuple[Sequence, ...] = (Sequence(self, list(spec.prompt)),)
        """Its sequences that have not ended."""
        self.prompt_scores: list[TokenLogprobs] = []
        """Of the prompt from its second token on, as far as computed, where the request wants them."""
        self.tells_prompt = spec.params.prompt_logprobs is not None
        """Its client still has to be told the `prompt_scores`."""
        self.cached_tokens = 0
        """Prompt tokens that its first admission found computed already."""
        self.most_computed = 0
        """Positions that one of its sequences had computed at most, when it was preempted."""
        self.status: RequestStatus = "gone"
        """Which queue it is in; for `Queues` alone to set."""
        self.output_tokens = 0
        """Produced so far, over all choices."""
        """Produced so far, over all its sequences, ended ones included."""
        self.state: object | None = None
        """Its strategy's own: whatever that keeps about a request, through preemptions, until it ends."""
        self.view = RequestView(self)
        if spec.resume is not None:
            self._go_on(spec.resume)

    def _go_on(self, resume: Resumption) -> None:
        self.cached_tokens = resume.cached_tokens
        self.timing.preempted = list(resume.interrupted)
        if not resume.choices:
            return
        self.timing.first_token = resume.first_token
        self.tells_prompt = False
        self.forks = self.width - 1
        self.output_tokens = sum(len(output) for _, output in resume.choices)
        self.live = tuple(Sequence(self, self.prompt + output, index) for index, output in resume.choices)

    @property
    def id(self) -> str:
        """As ``RequestView.id``."""
        return self.spec.id

    @property
    def prompt(self) -> list[int]:
        """Token ids."""
        return self.spec.prompt

    @property
    def params(self) -> SamplingParams:
        """The sampling parameters that the client asked for."""
        return self.spec.params

    @property
    def pending(self) -> int:
        """Tokens it wants computed this step, over all its sequences; guesses are no wish."""
        total = 0  # loops here and below, not generators: policies ask this of everybody in every step
        for sequence in self.live:
            total += len(sequence.tokens) - sequence.computed
        return total

    @property
    def unscored(self) -> range:
        """Positions of the prompt that must be computed for the scores still missing, cached or not."""
        if not self.tells_prompt:
            return range(0)
        return range(len(self.prompt_scores), len(self.prompt) - 1)

    @property
    def decode_ready(self) -> bool:
        """Every live sequence is one token away from its next logits."""
        for sequence in self.live:  # noqa: SIM110
            if len(sequence.tokens) - sequence.computed != 1:
                return False
        return True

    def __repr__(self) -> str:
        return f"<Request {self.id} prompt={len(self.prompt)} live={len(self.live)}>"
