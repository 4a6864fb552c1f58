"""The nouns of serving: what a client asked, and the token sequences that answer it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from turnout.core.errors import RequestError
from turnout.core.param_groups import check_choices
from turnout.core.structured_outputs import StructuredOutputs
from turnout.core.view import RequestView

if TYPE_CHECKING:
    from turnout.core.interfaces import Decoding
    from turnout.core.processors import ActiveProcessor

__all__ = [
    "Choice",
    "Completion",
    "Continuation",
    "Request",
    "RequestSpec",
    "Resumption",
    "SamplingParams",
    "Sequence",
    "Timing",
    "TokenLogprobs",
]

MAX_LOGPROBS = 20
MAX_CHOICES = 128


class SamplingParams(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """How a request's tokens are chosen and when they end. Names and meanings are vLLM's."""

    n: int = 1
    """Choices to return for one prompt."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """Keep the k likeliest tokens; 0 (or -1) keeps all."""
    min_p: float = 0.0
    """Drop tokens less likely than this fraction of the likeliest."""
    seed: int | None = None
    """None: drawn when the request is submitted."""
    max_tokens: int | None = 16
    """None: as many as the model's context leaves room for."""
    min_tokens: int = 0
    """No end-of-sequence or stop token before so many."""
    stop: tuple[str, ...] = ()
    """Strings that end the text; not part of it unless `include_stop_str_in_output`."""
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    """Over prompt and output, multiplicative; 1 is none (Keskar et al. 2019)."""
    logit_bias: dict[int, float] = {}
    allowed_token_ids: tuple[int, ...] | None = None
    """Choose among these alone; None: among all."""
    bad_words: tuple[str, ...] = ()
    """Words that must not be produced; whoever has the tokenizer adds their `bad_words_token_ids`."""
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not be produced."""
    structured_outputs: StructuredOutputs | None = None
    """The form that the output must have."""
    logprobs: int | None = None
    """Return the chosen token's log-probability and so many of the likeliest; None: neither."""
    skip_special_tokens: bool = True
    prompt_logprobs: int | None = None
    """Return each prompt token's log-probability and so many of the likeliest; None: neither."""
    best_of: int | None = None
    """Choices to generate, of which the `n` of highest cumulative log-probability are returned; None: `n`."""
    use_beam_search: bool = False
    """Search for the likeliest texts, instead of sampling."""
    beam_width: int | None = None
    """Beams kept at every step; None: `n` where that is above 1, else as many as the strategy likes."""
    length_penalty: float = 1.0
    """A finished beam's score is its cumulative log-probability by its length to this power."""
    early_stopping: bool | Literal["never"] = False
    """When `beam_width` beams are finished, end at once (True), when the best running one would not rank
    among them as it is (False), or when it could not however it went on (``never``)."""

    def __post_init__(self) -> None:
        self._take_lists_for_tuples()
        for name, kind, low, high in _RANGES:
            value: Any = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, kind) or isinstance(value, bool):
                what = "an integer" if kind is Integral else "a number"
                raise RequestError(f"{name} must be {what}, not {_short(value)}", name)
            if not _within(value, low, high):
                raise RequestError(f"{name} must be between {low:g} and {high:g}, not {_short(value)}", name)
        if self.top_p == 0:
            raise RequestError("top_p must be above 0 and at most 1, not 0", "top_p")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})", "min_tokens"
            )
        self._check_collections()
        check_choices(self)

    def _take_lists_for_tuples(self) -> None:
        for name in _LISTS:
            value: Any = getattr(self, name)
            if name == "stop" and isinstance(value, str):
                value = (value,)
            if value is None and name in _OPTIONAL:
                continue
            msgspec.structs.force_setattr(self, name, _as_tuple(name, value))
        words = tuple(_as_tuple("bad_words_token_ids", word) for word in self.bad_words_token_ids)
        msgspec.structs.force_setattr(self, "bad_words_token_ids", words)

    def _check_collections(self) -> None:
        for name, strings in (("stop", self.stop), ("bad_words", self.bad_words)):
            if not all(isinstance(text, str) and text for text in strings):
                raise RequestError(f"{name} must hold strings, none of them empty", name)
        for name, tokens in self.token_ids():
            if not all(isinstance(token, Integral) for token in tokens):
                raise RequestError(f"{name} must hold token ids, which are integers", name)
        if self.allowed_token_ids == ():
            raise RequestError("allowed_token_ids must hold at least one token id", "allowed_token_ids")
        if () in self.bad_words_token_ids:
            raise RequestError("bad_words_token_ids must hold no empty sequence", "bad_words_token_ids")
        if self.structured_outputs is not None:
            self._check_structured_outputs()
        for token, bias in self.logit_bias.items():
            if not isinstance(bias, Real) or not math.isfinite(bias):
                raise RequestError(
                    f"logit_bias must map token ids to finite numbers, not {_short(token)} to {_short(bias)}",
                    "logit_bias",
                )

    def _check_structured_outputs(self) -> None:
        name = "structured_outputs"
        if not isinstance(self.structured_outputs, StructuredOutputs):
            given = _short(self.structured_outputs)
            raise RequestError(f"{name} must be a StructuredOutputs, not {given}", name)
        if self.allowed_token_ids is not None:
            raise RequestError(f"{name} and allowed_token_ids both say what may come; give one", name)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0 and not self.use_beam_search

    @property
    def sampled(self) -> bool:
        return self.temperature > 0 and not self.use_beam_search

    def generating(self) -> SamplingParams:
        """What the engine is asked for: all of `best_of`, with the log-probabilities to choose among them."""
        if self.best_of is None:
            return self
        ranked = 0 if self.logprobs is None and self.best_of > self.n else self.logprobs
        return msgspec.structs.replace(self, n=self.best_of, best_of=None, logprobs=ranked)

    def token_ids(self) -> Iterator[tuple[str, Collection[int]]]:
        """The token ids that stand in any field, with its name."""
        yield "stop_token_ids", self.stop_token_ids
        yield "logit_bias", self.logit_bias
        yield "allowed_token_ids", self.allowed_token_ids or ()
        for word in self.bad_words_token_ids:
            yield "bad_words_token_ids", word


_RANGES: tuple[tuple[str, type, float, float], ...] = (
    ("n", Integral, 1, MAX_CHOICES),
    ("temperature", Real, 0, 100),
    ("top_p", Real, 0, 1),
    ("top_k", Integral, -1, 2**31 - 1),
    ("min_p", Real, 0, 1),
    ("seed", Integral, -(2**63), 2**63 - 1),
    ("max_tokens", Integral, 1, 2**31 - 1),
    ("min_tokens", Integral, 0, 2**31 - 1),
    ("presence_penalty", Real, -2, 2),
    ("frequency_penalty", Real, -2, 2),
    ("repetition_penalty", Real, 0.01, 100),
    ("logprobs", Integral, 0, MAX_LOGPROBS),
    ("prompt_logprobs", Integral, 0, MAX_LOGPROBS),
    ("best_of", Integral, 1, MAX_CHOICES),
    ("beam_width", Integral, 1, MAX_CHOICES),
    ("length_penalty", Real, -10, 10),
)
_OPTIONAL = frozenset(
    {"seed", "max_tokens", "logprobs", "prompt_logprobs", "allowed_token_ids", "best_of", "beam_width"}
)
_LISTS = ("stop", "stop_token_ids", "allowed_token_ids", "bad_words", "bad_words_token_ids")


def _as_tuple(name: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise RequestError(f"{name} must be a list, not {_short(value)}", name)
    return tuple(value)


def _within(value: Any, low: float, high: float) -> bool:
    """False for NaN."""
    return bool(low <= value <= high)


def _short(value: object) -> str:
    """A value for a message: numbers can be thousands of digits long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers that long
        return "a huge number"
    return text if len(text) <= 40 else f"{text[:37]}..."


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
    prompt: list[int]
    params: SamplingParams
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
    scheduled: float | None = None
    """First admitted."""
    first_token: float | None = None
    finished: float | None = None
    preempted: list[float] = []


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Natural log-probabilities at one position, of the model's own distribution (temperature 1)."""

    token: int
    logprob: float
    top: list[tuple[int, float]]
    """The likeliest tokens and theirs, best first."""


class Continuation(NamedTuple):
    """A decision: continue `parent` with `tokens`."""

    parent: Sequence
    tokens: list[int]
    """At least one. Those that the parent's draft guessed are computed already, all others will be."""
    logprob: float = 0.0
    """What the tokens add to the sequence's cumulative log-probability."""
    details: list[TokenLogprobs] | None = None
    """One for each of `tokens`, where the request wants them."""
    score: float = 0.0
    """What the strategy ranks the child by: it is kept as the child's `Sequence.score`."""


class Choice(NamedTuple):
    """A whole answer, from a strategy that keeps those that are finished itself."""

    tokens: list[int]
    """The output, a stop token included."""
    logprob: float
    """Cumulative, of the model's own distribution."""
    finish_reason: Literal["stop", "length"]
    stop_token: int | None = None
    """The stop token that ended it."""
    details: list[TokenLogprobs] | None = None
    """One for each of `tokens`, where the request wants them."""
    score: float | None = None
    """What the strategy ranked it by."""


class Completion(NamedTuple):
    """A decision: `request` ends now, with these `n` choices, best first, whatever sequences still live."""

    request: Request
    choices: list[Choice]


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
    tokens: list[int]
    index: int = 0
    """Which of the request's choices this is."""
    computed: int = 0
    """Positions whose KV is final; what lies above is garbage to overwrite."""
    draft: list[int] = field(default_factory=list)
    held: bool = False
    """It holds KV memory."""
    logprob: float = 0.0
    """Cumulative, over the output, as far as its decoding keeps one."""
    score: float = 0.0
    """What its decoding ranks it by, as its last continuation said."""
    details: list[TokenLogprobs] = field(default_factory=list)
    """One for each output token, where the request wants them."""
    id: int = field(default_factory=lambda: next(_sequence_ids))

    @property
    def end(self) -> int:
        """Length with the drafts."""
        return len(self.tokens) + len(self.draft)

    def fork(self) -> Sequence:
        """A sibling that goes on from here; its KV memory is the caller's business."""
        request = self.request
        request.births += 1
        return Sequence(
            request,
            list(self.tokens),
            index=request.births - 1,
            computed=self.computed,
            draft=list(self.draft),
            held=self.held,
            logprob=self.logprob,
            details=list(self.details),
        )

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.request.prompt) :]

    @property
    def room(self) -> int:
        """Tokens it may still produce."""
        return self.request.limit - len(self.tokens)


Place = Literal["running", "waiting", "gone"]


class Request:
    """A request inside the engine: its spec, how it is decoded, and the sequences that live."""

    __slots__ = (
        "__weakref__",
        "births",
        "cached_tokens",
        "decoding",
        "fault",
        "furthest",
        "limit",
        "live",
        "output_tokens",
        "place",
        "processors",
        "prompt_scores",
        "spec",
        "state",
        "stop_ids",
        "tells_prompt",
        "timing",
        "view",
        "width",
    )

    def __init__(
        self,
        spec: RequestSpec,
        decoding: Decoding,
        arrival: float,
        limit: int,
        stop_ids: frozenset[int],
    ):
        self.spec = spec
        self.decoding = decoding
        self.processors: tuple[ActiveProcessor, ...] = ()
        """The logits processors that it wants."""
        self.fault: str | None = None
        """Why it cannot go on, where a logits processor failed at it."""
        self.timing = Timing(arrival=arrival)
        self.limit = limit
        """Length at which its sequences end: prompt plus max_tokens."""
        self.stop_ids = stop_ids
        self.width = decoding.width(spec.params)
        """Sequences it keeps alive at most."""
        self.births = 1
        """Sequences it ever had; numbers the next fork."""
        self.live: tuple[Sequence, ...] = (Sequence(self, list(spec.prompt)),)
        self.prompt_scores: list[TokenLogprobs] = []
        """Of the prompt from its second token on, as far as computed, where the request wants them."""
        self.tells_prompt = spec.params.prompt_logprobs is not None
        """Its client still has to be told the `prompt_scores`."""
        self.cached_tokens = 0
        """Prompt tokens that its first admission found computed already."""
        self.furthest = 0
        """Positions that one of its sequences had computed at most, when it was preempted."""
        self.place: Place = "gone"
        """Which queue it is in; for `Queues` alone to set."""
        self.output_tokens = 0
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
        self.births = self.width
        self.output_tokens = sum(len(output) for _, output in resume.choices)
        self.live = tuple(Sequence(self, self.prompt + output, index) for index, output in resume.choices)

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def prompt(self) -> list[int]:
        return self.spec.prompt

    @property
    def params(self) -> SamplingParams:
        return self.spec.params

    @property
    def pending(self) -> int:
        """Tokens it wants computed this step, over all its sequences."""
        total = 0  # loops here and below, not generators: policies ask this of everybody in every step
        for sequence in self.live:
            total += len(sequence.tokens) + len(sequence.draft) - sequence.computed
        return total

    @property
    def unscored(self) -> range:
        """Positions of the prompt that must be computed for the scores still missing, cached or not."""
        if not self.tells_prompt:
            return range(0)
        return range(len(self.prompt_scores), len(self.prompt) - 1)

    @property
    def level(self) -> bool:
        """Every live sequence is one token away from its next logits."""
        for sequence in self.live:  # noqa: SIM110
            if len(sequence.tokens) - sequence.computed != 1:
                return False
        return True

    def __repr__(self) -> str:
        return f"<Request {self.id} prompt={len(self.prompt)} live={len(self.live)}>"
