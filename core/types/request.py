"""A request inside the engine, the sequences that answer it, and what policies see of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol

from turnout.core.errors import RequestError
from turnout.core.types.extra_args import ExtraArg
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.pooling import PromptPooling
from turnout.core.types.request_spec import MAX_CHUNKS, RequestSpec, Resumption, Timing, Traced
from turnout.core.types.sampling_params import SamplingParams

__all__ = [
    "MAX_CHUNKS",
    "Request",
    "RequestSpec",
    "RequestStatus",
    "RequestView",
    "Resumption",
    "Sequence",
    "Timing",
    "Traced",
    "request_of",
]


_sequence_ids = count()


@dataclass(eq=False, slots=True, weakref_slot=True)
class Sequence:
    """One token path of a request.

    ::

        tokens   [ prompt .............. | output ...... ]
        draft                                            [ draft tokens ]
        computed [ KV is final ........... )
                                           [ pending ............. )
    """

    request: Request
    """The request that the sequence belongs to."""
    tokens: list[int]
    """Prompt and output. Where steps overlap, the last one may be a placeholder, below 0, when KV memory is
    reserved: the token is in flight. A strategy never sees one, and none is ever committed."""
    index: int = 0
    """Which of the request's choices this is."""
    computed: int = 0
    """Positions whose KV is final; later ones will be overwritten."""
    draft: list[int] = field(default_factory=list)
    """Draft tokens to be verified."""
    held: bool = False
    """Whether it holds KV memory."""
    logprob: float = 0.0
    """Cumulative over the output, if its decoding strategy keeps it."""
    score: float = 0.0
    """What its decoding strategy ranks it by, from its last continuation."""
    details: list[TokenLogprobs] = field(default_factory=list)
    """One for each output token, if the request wants them."""
    id: int = field(default_factory=lambda: next(_sequence_ids))
    """Stays the same while the sequence lives, and is never used again."""

    @property
    def end(self) -> int:
        """The length, drafts included."""
        return len(self.tokens) + len(self.draft)

    def fork(self) -> Sequence:
        """Returns a sibling that continues from here; the caller forks the KV memory."""
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
        """The tokens after the prompt; a copy."""
        return self.tokens[len(self.request.prompt) :]

    @property
    def room(self) -> int:
        """How many tokens it may still produce."""
        return self.request.limit - len(self.tokens)


class Strategy(Protocol):
    """The part of `Decoding` that a request uses."""

    streams: ClassVar[bool]

    def width(self, params: SamplingParams) -> int: ...


class AdjustsRows(Protocol):
    """The part of `ActiveProcessor` that a request uses."""

    title: str
    index: int


RequestStatus = Literal["running", "waiting", "finishing", "gone"]
"""``finishing``: its last tokens are in flight."""


class Request:
    """A request inside the engine: its spec, its decoding strategy, and its live sequences."""

    __slots__ = (
        "__weakref__",
        "_given_up",
        "_taken",
        "begun",
        "cached_tokens",
        "decisions_left",
        "decoding",
        "ended",
        "fault",
        "first_delta_due",
        "forks",
        "limit",
        "live",
        "most_computed",
        "output_tokens",
        "pooling",
        "processors",
        "prompt_scores",
        "prompt_scores_due",
        "retried",
        "spec",
        "state",
        "status",
        "stop_ids",
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
        width: int | None = None,
    ):
        """width: what the strategy's `width` gave; None: it is asked."""
        self.spec = spec
        """What the client asked for."""
        self.decoding = decoding
        self.processors: tuple[AdjustsRows, ...] = ()
        """The logits processors that apply to it."""
        self.fault: str | RequestError | None = None
        """Why it cannot continue, if a logits processor failed at it; a RequestError if that is its fault."""
        self.pooling: PromptPooling | None = None
        """What becomes of its prompt, if it generates nothing."""
        self.timing = Timing(arrival=arrival)
        self.limit = limit
        """Length at which its sequences end: prompt plus max_tokens."""
        self.stop_ids = stop_ids
        self.width = decoding.width(spec.params) if width is None else width
        """How many live sequences it has at most."""
        self.ended = 0
        """Choices that have ended."""
        self._taken: set[int] = set()
        """The indices of choices that have ended, of a strategy that does not stream."""
        self._given_up: set[int] = set()
        """The indices of choices that the client has given up."""
        self.decisions_left = limit - len(spec.prompt) + 1
        """Decisions until it must have ended: each adds a token to each of its sequences."""
        self.forks = 0
        """Sequences forked from others so far; numbers the next one."""
        self.live: tuple[Sequence, ...] = (Sequence(self, list(spec.prompt)),)
        """Its sequences that have not ended."""
        self.prompt_scores: list[TokenLogprobs] = []
        """Log-probabilities of the prompt from its second token on, as far as computed, if it wants them."""
        self.prompt_scores_due = spec.params.prompt_logprobs is not None
        """Whether the `prompt_scores` still have to be sent to the client."""
        self.first_delta_due = True
        """Whether its first delta, which tells more than those that follow, still has to be sent."""
        self.cached_tokens = 0
        """Prompt tokens that were cached when it was first admitted."""
        self.most_computed = 0
        """The most positions that one of its sequences had computed when it was preempted."""
        self.begun = False
        """Memory has been asked for it; noted only where the scheduler tells of it."""
        self.status: RequestStatus = "gone"
        """Which queue it is in; only `Queues` sets this."""
        self.output_tokens = 0
        """Tokens produced so far, over all its sequences, ended ones included."""
        self.retried = (0, 0)
        """The output tokens at which its strategy last asked for it again, and how often by then."""
        self.state: object | None = None
        """What its decoding strategy keeps about it, through preemptions, until it ends."""
        self.view = RequestView(self)
        if spec.resume is not None:
            self._resume(spec.resume)

    def _resume(self, resume: Resumption) -> None:
        self.cached_tokens = resume.cached_tokens
        self.timing.preempted = list(resume.interrupted)
        if not resume.choices:
            return
        self.timing.first_token = resume.first_token
        self.prompt_scores_due, self.first_delta_due = False, self.spec.traced
        self.forks = self.width - 1
        self.ended = self.params.n - len(resume.choices)
        self.output_tokens = sum(len(output) for _, output in resume.choices)
        self.live = tuple(Sequence(self, self.prompt + output, index) for index, output in resume.choices)

    def close(self) -> None:
        """Parts it from its view, when nothing is told of it any more.

        They refer to each other: such a circle stays in memory, with the prompt, until Python looks for
        circles.
        """
        del self.view

    def give_up(self, index: int) -> None:
        """Notes that the client does not want choice `index` any more, whether or not there is one yet."""
        self._given_up.add(index)

    @property
    def lacks_choices(self) -> bool:
        """Whether choices are missing that have neither ended nor been given up."""
        return self.ended < self.params.n and len(self._taken | self._given_up) < self.params.n

    def choice_index(self, index: int) -> int:
        """Returns the number of the choice that sequence `index` ends as: its own, or a free one.

        Sequences of a strategy that does not stream come and go, so there may be more of them than choices.
        """
        if index >= self.params.n or index in self._taken:
            index = next(free for free in range(len(self._taken) + 1) if free not in self._taken)
        self._taken.add(index)
        return index

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
        """Tokens to compute in this step, over all its sequences, without drafts."""
        total = 0  # loops here and below, not generators: policies read this for each request in each step
        for sequence in self.live:
            total += len(sequence.tokens) - sequence.computed
        return total

    @property
    def unscored(self) -> range:
        """Positions of the prompt to compute for its missing scores or its pooling, cached or not."""
        if self.pooling is not None:
            return self.pooling.unread
        if not self.prompt_scores_due:
            return range(0)
        return range(len(self.prompt_scores), len(self.prompt) - 1)

    @property
    def decode_ready(self) -> bool:
        """Whether each live sequence is one token away from its next logits."""
        if self.pooling is not None:
            return False
        for sequence in self.live:  # noqa: SIM110
            if len(sequence.tokens) - sequence.computed != 1:
                return False
        return True

    def __repr__(self) -> str:
        return f"<Request {self.id} prompt={len(self.prompt)} live={len(self.live)}>"


class RequestView:
    """A request as policies see it. All attributes are read-only; times are seconds on the engine's clock.

    What never changes is stored here and not read from the request: policies read it a thousand times a step.
    """

    __slots__ = (
        "_request",
        "arrival",
        "client",
        "deadline",
        "id",
        "max_tokens",
        "priority",
        "prompt_tokens",
        "ttft_deadline",
        "user",
    )
    _request: Request
    id: str
    """The request's own, as its answers name it. Each prompt of ``/v1/completions`` is a request, and its id
    ends in the prompt's number: ``cmpl-…-0``."""
    client: str
    """The client: its API key's name, else the ``user`` that the request named, else the digest of its key,
    else empty."""
    user: str
    """The ``user`` that a request with a named key named, for sharing within the client; else empty."""
    priority: int
    """As the client gave it; lower is more urgent; 0 if not given."""
    arrival: float
    """When the request arrived."""
    deadline: float | None
    """When it should be finished."""
    ttft_deadline: float | None
    """When its first token should be there."""
    prompt_tokens: int
    """The length of the prompt."""
    max_tokens: int
    """Output tokens of one choice, at most."""

    def __init__(self, request: Request) -> None:
        spec, arrival = request.spec, request.timing.arrival
        constants = {
            "_request": request,
            "id": spec.id,
            "client": spec.client,
            "user": spec.user,
            "priority": spec.priority,
            "arrival": arrival,
            "deadline": None if spec.deadline is None else arrival + spec.deadline,
            "ttft_deadline": None if spec.ttft_deadline is None else arrival + spec.ttft_deadline,
            "prompt_tokens": len(spec.prompt),
            "max_tokens": request.limit - len(spec.prompt),
        }
        for name, value in constants.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"policies cannot change a request: {name} is read-only")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"policies cannot change a request: {name} is read-only")

    @property
    def scheduled(self) -> float | None:
        """When it was first admitted."""
        return self._request.timing.scheduled

    @property
    def first_token(self) -> float | None:
        """When its first token came."""
        return self._request.timing.first_token

    @property
    def preemptions(self) -> int:
        """How often it was preempted."""
        return len(self._request.timing.preempted)

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids; a copy."""
        return tuple(self._request.spec.prompt)

    @property
    def extra_args(self) -> Mapping[str, ExtraArg]:
        """What the client passed to plugins, by the names that they declare."""
        return MappingProxyType(self._request.spec.params.extra_args)

    @property
    def output_tokens(self) -> int:
        """Tokens produced so far, over all its choices."""
        return self._request.output_tokens

    @property
    def choices(self) -> int:
        """How many live sequences it has at most."""
        return self._request.width

    @property
    def pending(self) -> int:
        """Tokens to compute in this step: all of its prompt at first, one for each choice later."""
        return self._request.pending

    @property
    def decoding(self) -> bool:
        """Whether it needs only its next tokens; if not, a prompt or what a preemption cost is left."""
        return self._request.decode_ready

    def __repr__(self) -> str:
        return repr(self._request)


def request_of(view: RequestView) -> Request:
    """Returns the request behind a view: for the scheduler, not for policies."""
    return view._request
