"""Runs a client's prompts through the engine. All endpoints, streamed or not, share this."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from turnout.core import limits
from turnout.core.engine.client import EngineClient
from turnout.core.types.logprobs import PackedLogprobs, TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec, Timing, Traced
from turnout.server.generation.gathered import GatheredChoice
from turnout.server.generation.merge import merged
from turnout.server.generation.portions import Portion, Portions, waited
from turnout.server.metrics.request_metrics import RequestMeter, RequestMetrics
from turnout.text.best_of import best_of
from turnout.text.choice_text import ChoiceText, TextDelta
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.split.split_text import SplitText
from turnout.text.stops import StopStrings
from turnout.text.tokenizer import Tokenizer

__all__ = ["Direct", "Generation", "ScoredPrompt", "note_traced", "start_of_prompt"]

Submit = Callable[[RequestSpec], AsyncGenerator[Delta, None]]
"""As `EngineClient.submit`."""
CHOICE = 16
"""Tokens whose rendering takes as long as that of what else is told of a choice."""
STEP = 2**16
"""Bytes by which an answer grows until `Generation.hold` is told."""


class ScoredPrompt(NamedTuple):
    """A prompt with its log-probabilities."""

    tokens: Sequence[int]
    scores: Sequence[TokenLogprobs]
    """From the second token on."""


class Direct(Protocol):
    """Shows deltas of text in the moment in which they come."""

    def takes(self, choice: int) -> bool:
        """Whether a delta of the choice can be shown now."""
        ...

    def show(self, delta: TextDelta) -> None:
        """Show a delta; called where `takes` has said so just now."""
        ...


def _unbounded(size: int) -> None:
    """For answers whose memory is not bounded."""


@dataclass
class Generation:
    """One client's requests to the engine, one for each prompt, all with the same parameters.

    Choices are numbered prompt by prompt: those of the first prompt come first.
    """

    client: EngineClient
    tokenizer: Tokenizer
    metrics: RequestMetrics
    requests: Sequence[RequestSpec]
    returned: int
    """Choices that the client gets for each prompt: the best of those that are generated."""
    token_ids: bool = False
    """The client wants the tokens, so a delta comes for tokens whose text is held back too."""
    prompt_only: bool = False
    """The client wants nothing that is generated: choices have no text and no tokens."""
    splitter: Callable[[], OutputSplitter] | None = None
    """Makes what tells the parts of a choice's output apart; None: an output is text."""
    reasons: bool = False
    """It tells reasoning from the answer."""
    shown: frozenset[int] = frozenset()
    """Special tokens that are text, since the splitter reads them."""
    portions: Portions | None = None
    """Shared with other requests of many prompts; None: by none."""
    first_token_at: float | None = field(default=None, init=False)
    """When the first token of any choice came, on the metrics' clock."""
    error: str = field(default="", init=False)
    """Why it failed, as one word, once it has begun to answer; set by who answers."""
    refused: bool = field(default=False, init=False)
    """The engine refused it, so that its tokens count for no key; set by who answers."""
    hold: Callable[[int], None] = _unbounded
    """Told now and then how many bytes the answer takes by now; may raise Overloaded."""
    direct: Direct | None = field(default=None, init=False)
    """Shows deltas that come while the reader of `deltas` waits for the next; None: the reader gets all."""
    _submit: Submit | None = field(default=None, init=False)
    """None: the client's own."""
    _began: float = field(init=False)
    """When it came, on the metrics' clock."""
    _choices: dict[int, ChoiceText | SplitText] = field(default_factory=dict)
    """Those that have begun and not ended."""
    _ended: dict[int, str] = field(default_factory=dict)
    """Why choices ended, by index."""
    _ended_tokens: int = 0
    """Tokens of the choices that have ended."""
    _stops: StopStrings = field(init=False)
    _reasoning_tokens: int = 0
    _cached_tokens: dict[str, int] = field(default_factory=dict)
    traces: dict[str, list[Traced]] = field(default_factory=dict, init=False)
    """Of requests that are traced, by id: what each engine that served it told last."""
    _timings: dict[str, Timing] = field(default_factory=dict)
    _prompt_scores: dict[str, PackedLogprobs] = field(default_factory=dict)
    _size: int = 0
    _told: int = 0

    def __post_init__(self) -> None:
        self._stops = StopStrings(self.requests[0].params.stop)
        self._began = self.metrics.clock()

    def submit_by(self, submit: Submit) -> None:
        """Have another way lead to the engine, for a generation of one prompt that has not begun."""
        self._submit = submit

    def count_wait(self, seconds: float) -> None:
        """Count seconds for which requests waited before this was made: deadlines stay where they were."""
        self._began -= seconds
        self.requests = [waited(request, seconds) for request in self.requests]

    def deltas(self) -> AsyncGenerator[TextDelta, None]:
        """What a client may see, as it comes. Raises what `EngineClient.submit` raises."""
        if len(self.requests) == 1:
            return self._serve(0)
        shared = self.portions or Portions(self.client, lambda: limits.PORTION.whole)
        portion = Portion(shared, self.requests[0].params.n)
        self._submit = portion.submit
        return merged(map(self._serve, range(len(self.requests))), portion)

    async def choices(self) -> list[TextDelta]:
        """The choices to return, each as one delta. Raises what `EngineClient.submit` raises."""
        gathered: dict[int, GatheredChoice] = {}
        whole: dict[int, TextDelta] = {}
        async with aclosing(self.deltas()) as stream:
            async for delta in stream:
                choice = gathered.get(delta.index)
                if choice is None:
                    choice = gathered[delta.index] = GatheredChoice(token_ids=self.token_ids)
                before = choice.size
                choice.add(delta)
                self._take(choice.size - before)
                if delta.finish_reason:
                    whole[delta.index] = gathered.pop(delta.index).whole()
        return self._best([whole[index] for index in range(self.choice_count)])

    # -------------------------------------------------------------- what is known once it has ended

    @property
    def choice_count(self) -> int:
        """Choices that are generated."""
        return sum(request.params.n for request in self.requests)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(request.prompt) for request in self.requests)

    @property
    def completion_tokens(self) -> int:
        """Tokens generated, a stop token or the tokens of a stop string included."""
        if self.prompt_only:
            return 0
        return self._ended_tokens + sum(choice.token_count for choice in self._choices.values())

    @property
    def counted_tokens(self) -> int:
        """Tokens that count for the client's key."""
        return 0 if self.refused else self.prompt_tokens + self.completion_tokens

    @property
    def finish_reasons(self) -> list[str]:
        """Of all choices that are generated; ``abort`` of those that have not ended."""
        return [self._ended.get(index, "abort") for index in range(self.choice_count)]

    def prompt_texts(self, longest: int | None) -> list[str]:
        """The prompts as the model gets them, each cut to so many characters."""
        return [start_of_prompt(self.tokenizer, request.prompt, longest) for request in self.requests]

    @property
    def reasoning_tokens(self) -> int | None:
        """Tokens generated that are reasoning; None where it is not told from the answer."""
        return self._reasoning_tokens if self.reasons else None

    @property
    def entries(self) -> int:
        """About how many tokens, and log-probabilities of tokens, a response shows; a choice takes as long as
        `CHOICE`."""
        params = self.requests[0].params
        output = self.completion_tokens * (1 + (params.logprobs or 0))
        scored = sum(map(len, self._prompt_scores.values())) * (1 + (params.prompt_logprobs or 0))
        return output + scored * self.returned + CHOICE * self.choice_count

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens whose KV memory was found, not computed."""
        return sum(self._cached_tokens.values())

    @property
    def timings(self) -> list[Timing | None] | None:
        """For each prompt, where the engine told it; None where the client did not ask for timing."""
        if not self.requests[0].timing:
            return None
        return [self._timings.get(request.id) for request in self.requests]

    def request_of(self, choice: int) -> RequestSpec:
        """The request of a returned choice."""
        return self.requests[choice // self.returned]

    def cached_of(self, choice: int) -> int:
        """Cached tokens of the prompt of a returned choice, once it has begun."""
        return self._cached_tokens.get(self.request_of(choice).id, 0)

    def prompt_of(self, choice: int) -> ScoredPrompt | None:
        """The prompt of a returned choice, where its log-probabilities were asked for.

        While choices are streamed, those are known from the first delta of the choice on.
        """
        request = self.request_of(choice)
        scores = self._prompt_scores.get(request.id)
        return None if scores is None else ScoredPrompt(request.prompt, scores)

    # -------------------------------------------------------------- details

    async def _serve(self, number: int) -> AsyncGenerator[TextDelta, None]:
        request = self.requests[number]
        first = number * request.params.n
        with RequestMeter(self.metrics, request, self._began, prompt_only=self.prompt_only) as meter:
            read = partial(self._seen, request, first, meter)
            at_once = partial(self._taken_at_once, read)
            submitted = self._submit(request) if self._submit else self.client.submit(request, at_once)
            async with aclosing(submitted) as deltas:
                async for delta in deltas:
                    if (added := read(delta)) is not None:
                        yield added

    def _taken_at_once(self, read: Callable[[Delta], TextDelta | None], delta: Delta) -> bool:
        """As `TakesAtOnce`, of a generation of one prompt."""
        if self.direct is None or not self.direct.takes(delta.index):
            return False
        if (added := read(delta)) is not None:
            self.direct.show(added)
        return True

    def _seen(self, request: RequestSpec, first: int, meter: RequestMeter, delta: Delta) -> TextDelta | None:
        """What a client may see of a delta: at least that a choice has begun. None: nothing."""
        if delta.begun is not None:
            meter.begin(delta.begun, delta.cached_tokens)
        added = self._feed(request, first + delta.index, delta)
        meter.take(added)
        if self.prompt_only:
            added = _without_output(added)
        if added.shows or added.begins or (self.token_ids and added.tokens):
            return added
        return None

    def _feed(self, request: RequestSpec, index: int, delta: Delta) -> TextDelta:
        added = TextDelta(index) if index in self._ended else self._read(request, index, delta)
        if delta.cached_tokens:
            self._cached_tokens[request.id] = delta.cached_tokens
        if delta.traced is not None:
            note_traced(self.traces, request.id, delta.traced)
        if delta.prompt_logprobs is not None:
            given = delta.prompt_logprobs  # packed, unless a stand-in for the engine gave them
            scores = given if isinstance(given, PackedLogprobs) else PackedLogprobs(given)
            self._prompt_scores[request.id] = scores
            self._take(scores.nbytes)
        if delta.timing is not None:
            self._timings[request.id] = delta.timing
        return added

    def _read(self, request: RequestSpec, index: int, delta: Delta) -> TextDelta:
        """The text of a choice that has not ended."""
        choice = self._choices.get(index)
        if choice is None:
            self.first_token_at = self.first_token_at or self.metrics.clock()
            choice = self._choices[index] = self._text_of(request, index)
        added = choice.feed(delta)
        self._reasoning_tokens += added.reasoning_tokens
        if added.finish_reason:
            if choice.stopped_by_text:
                self.client.abort(request.id, delta.index)
            self._ended[index] = added.finish_reason
            self._ended_tokens += choice.token_count
            del self._choices[index]
        return added

    def _take(self, size: int) -> None:
        """Note that so many bytes more are kept until the response has ended."""
        self._size += size
        if self._size >= self._told + STEP:
            self._told = self._size
            self.hold(self._size)

    def _text_of(self, request: RequestSpec, index: int) -> ChoiceText | SplitText:
        """The text of a choice that begins."""
        params = request.params
        text = ChoiceText(self.tokenizer, params, request.prompt, index, self._stops, self.shown)
        if self.splitter is None:
            return text
        singly = self.reasons or bool(params.stop) or params.logprobs is not None
        return SplitText(text, self.splitter(), singly=singly)

    def _best(self, generated: Sequence[TextDelta]) -> list[TextDelta]:
        """The choices to return of all that were generated, numbered anew."""
        returned: list[TextDelta] = []
        for number, request in enumerate(self.requests):
            first = number * request.params.n
            choices = generated[first : first + request.params.n]
            positions = best_of([choice.cumulative_logprob for choice in choices], self.returned)
            returned += [choices[position] for position in positions]
        return [msgspec.structs.replace(choice, index=index) for index, choice in enumerate(returned)]


def note_traced(traces: dict[str, list[Traced]], id: str, traced: Traced) -> None:
    """Note what an engine told of a request, in place of what the same engine told before."""
    told = traces.setdefault(id, [])
    if told and told[-1].timing.scheduled == traced.timing.scheduled:
        told.pop()
    told.append(traced)


def start_of_prompt(tokenizer: Tokenizer, prompt: Sequence[int], longest: int | None) -> str:
    """The text of a prompt, cut to so many characters."""
    return tokenizer.decode(prompt[:longest], skip_special_tokens=False)[:longest]


def _without_output(delta: TextDelta) -> TextDelta:
    """What remains for a client that wants the prompt alone. The length, no token, has ended the choice."""
    return TextDelta(delta.index, finish_reason=delta.finish_reason and "length")
