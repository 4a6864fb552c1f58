"""Measures requests as their tokens pass through the server, for ``GET /metrics``.

Names, except for the prefix, and buckets are vLLM's (``vllm/v1/metrics/loggers.py``), so that dashboards made
for vLLM work. As in vLLM, each choice of a request counts as one that ends.
"""

from __future__ import annotations

from array import array
from asyncio import CancelledError
from collections.abc import Callable
from itertools import count, takewhile
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry, Counter, Histogram

from turnout.core.clock import Clock, monotonic
from turnout.core.errors import Dropped, RequestError
from turnout.core.interfaces.trial import Outcome, RecordEnd
from turnout.core.types.request import RequestSpec
from turnout.server.metrics.per_token import Distribution, Total
from turnout.text.choice_text import TextDelta

__all__ = ["PREFIX", "RequestMeter", "RequestMetrics"]

PREFIX = "turnout:"

# fmt: off
FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
    640, 2560,
)
PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
CHOICES = (1, 2, 5, 10, 20)
WHOLE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
# fmt: on


def _lengths(longest: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, … up to `longest`."""
    steps = (mantissa * 10**exponent for exponent in count() for mantissa in (1, 2, 5))
    return tuple(takewhile(lambda step: step <= longest, steps))


class RequestMetrics:
    """The histograms and counters, in a registry of their own, since a process may run several servers."""

    def __init__(
        self,
        model: str,
        max_model_len: int,
        clock: Clock = monotonic,
        *,
        arrive: Callable[[], RecordEnd] | None = None,
    ) -> None:
        """`arrive` is called for each request, for an A/B test that judges the arms."""
        self.registry = CollectorRegistry()
        self.clock = clock
        self.arrive = arrive
        self._model = model
        lengths = _lengths(max_model_len)
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "Time from a request's arrival to its first token.", FIRST_TOKEN
        )
        self.between_tokens = Distribution(
            PREFIX + "inter_token_latency_seconds",
            "Time between a choice's tokens; those that come together share it evenly.",
            PER_TOKEN,
            {"model_name": model},
        )
        self.registry.register(self.between_tokens)
        self.per_token = self._histogram(
            "request_time_per_output_token_seconds",
            "Mean time for each of a finished choice's tokens after the first.",
            PER_TOKEN,
        )
        self.whole = self._histogram(
            "e2e_request_latency_seconds", "Time from a request's arrival to the end of a choice.", WHOLE
        )
        self.queue = self._histogram(
            "request_queue_time_seconds", "Time from a request's arrival until it was admitted.", WHOLE
        )
        self.prefill = self._histogram(
            "request_prefill_time_seconds", "Time from a request's admission to its first token.", WHOLE
        )
        self.decode = self._histogram(
            "request_decode_time_seconds", "Time from a finished choice's first token to its last.", WHOLE
        )
        self.inference = self._histogram(
            "request_inference_time_seconds",
            "Time from a request's admission to the last token of a finished choice.",
            WHOLE,
        )
        self.prompt_lengths = self._histogram(
            "request_prompt_tokens", "Tokens in a prompt, counted when its first token comes.", lengths
        )
        self.output_lengths = self._histogram(
            "request_generation_tokens", "Tokens in a finished choice.", lengths
        )
        self.longest = self._histogram(
            "request_max_num_generation_tokens", "Tokens in a finished request's longest choice.", lengths
        )
        self.choices = self._histogram("request_params_n", "Choices that a request wants.", CHOICES)
        self.most_tokens = self._histogram(
            "request_params_max_tokens", "Tokens that a request allows each of its choices.", lengths
        )
        self.cached_tokens = self._counter(
            "prompt_tokens_cached", "Of the prompt tokens, those whose KV was cached."
        )
        self.prompt_tokens = self._counter(
            "prompt_tokens", "Prompt tokens, counted when the first token comes."
        )
        self.output_tokens = Total(
            PREFIX + "generation_tokens", "Tokens generated, counted as they come.", {"model_name": model}
        )
        self.registry.register(self.output_tokens)
        labels = ("model_name", "endpoint")
        self._pooled_requests = Counter(
            PREFIX + "pooled_requests",
            "Requests that generate nothing, answered.",
            labels,
            registry=self.registry,
        )
        self._pooled_texts = Counter(
            PREFIX + "pooled_texts", "Texts that became embeddings or scores.", labels, registry=self.registry
        )
        self._pooled_tokens = Counter(
            PREFIX + "pooled_tokens", "Tokens of those texts.", labels, registry=self.registry
        )
        self._ended = Counter(
            PREFIX + "request_success",
            "Choices that ended; finished_reason: stop, length, abort (the client left) or error.",
            ("model_name", "finished_reason"),
            registry=self.registry,
        )
        for reason in ("stop", "length", "abort", "error"):
            self.ended(reason, 0)

    def ended(self, reason: str, choices: int = 1) -> None:
        self._ended.labels(self._model, reason).inc(choices)

    def pooled_request(self, endpoint: str) -> None:
        """Count a request that generates nothing, which an endpoint answers."""
        self._pooled_requests.labels(self._model, endpoint).inc()

    def pooled(self, endpoint: str, texts: int, tokens: int) -> None:
        """Count texts that an endpoint reads which generates nothing."""
        self._pooled_texts.labels(self._model, endpoint).inc(texts)
        self._pooled_tokens.labels(self._model, endpoint).inc(tokens)

    def _histogram(self, name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
        name = PREFIX + name
        family = Histogram(name, description, ("model_name",), registry=self.registry, buckets=buckets)
        return family.labels(self._model)

    def _counter(self, name: str, description: str) -> Counter:
        return Counter(PREFIX + name, description, ("model_name",), registry=self.registry).labels(
            self._model
        )


class RequestMeter:
    """Measures one request, from `arrival` on the metrics' clock until its ``with`` block is left."""

    def __init__(
        self, metrics: RequestMetrics, request: RequestSpec, arrival: float, *, prompt_only: bool = False
    ) -> None:
        """prompt_only: the token that the engine makes is not for the client, and is not counted."""
        self._metrics = metrics
        self._prompt_only = prompt_only
        self._prompt_tokens = len(request.prompt)
        self._open = request.params.n
        self._arrival = arrival
        self._params = request.params
        self._pooled = request.pooling is not None
        self._prefill: float | None = None
        """Seconds from its admission to its first token."""
        self._longest = 0
        """Tokens of its longest choice that has ended."""
        self._begun = False
        self._choices: dict[int, _ChoiceTimes] = {}
        self._outcomes: list[Outcome] = []
        self._record_end = metrics.arrive() if metrics.arrive else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Count the choices that end only with the block. A request that was refused does not count."""
        if self._open and isinstance(error, GeneratorExit | CancelledError):
            self._end_open("abort", "")
        elif self._open and error is not None and (self._begun or not _is_refusal(error)):
            self._end_open("error", str(error))
        if self._record_end is not None:
            self._record_end(self._outcomes)

    def begin(self, begun: tuple[float, float], cached_tokens: int) -> None:
        """Count what is known with the first delta: seconds until it was admitted, and to its first token."""
        waited, self._prefill = begun
        metrics = self._metrics
        metrics.queue.observe(waited)
        metrics.prefill.observe(self._prefill)
        metrics.cached_tokens.inc(cached_tokens)
        if not self._pooled:
            metrics.choices.observe(self._params.n)
            if self._params.max_tokens is not None:
                metrics.most_tokens.observe(self._counted(self._params.max_tokens))

    def take(self, delta: TextDelta) -> None:
        """Count what came for a choice."""
        now = self._metrics.clock()
        if delta.tokens:
            self._tokens(self._choices.get(delta.index), delta.index, len(delta.tokens), now)
        if delta.finish_reason:
            self._end(delta.index, delta.finish_reason, now)

    def take_pooled(self) -> None:
        """Count a request that generates nothing, which has ended."""
        now = self._metrics.clock()
        self._begun = True
        self._metrics.prompt_lengths.observe(self._prompt_tokens)
        self._metrics.prompt_tokens.inc(self._prompt_tokens)
        self._metrics.whole.observe(now - self._arrival)
        self._end(0, "stop", now)

    def _tokens(self, choice: _ChoiceTimes | None, index: int, tokens: int, now: float) -> None:
        if not self._begun:
            self._begun = True
            self._metrics.first_token.observe(now - self._arrival)
            self._metrics.prompt_lengths.observe(self._prompt_tokens)
            self._metrics.prompt_tokens.inc(self._prompt_tokens)
        if choice is None:
            choice = self._choices[index] = _ChoiceTimes()
        else:
            self._metrics.between_tokens.observe((now - choice.latest) / tokens, tokens)
        choice.times.extend([now] * tokens)
        self._metrics.output_tokens.value += self._counted(tokens)

    def _end(self, index: int, reason: str, now: float) -> None:
        self._open -= 1
        self._metrics.ended(reason)
        choice = self._choices.get(index)
        self._outcomes.append(self._outcome(choice, reason, now))
        if choice is None or reason not in ("stop", "length"):
            return
        self._metrics.whole.observe(now - self._arrival)
        length = self._counted(choice.tokens)
        self._metrics.output_lengths.observe(length)
        self._longest = max(self._longest, length)
        if not self._open:
            self._metrics.longest.observe(self._longest)
        decode = choice.latest - choice.first
        self._metrics.decode.observe(decode)
        if self._prefill is not None:
            self._metrics.inference.observe(self._prefill + decode)
        if choice.tokens > 1:
            self._metrics.per_token.observe((choice.latest - choice.first) / (choice.tokens - 1))

    def _counted(self, tokens: int) -> int:
        return 0 if self._prompt_only else tokens

    def _end_open(self, reason: str, error: str) -> None:
        """Count the choices that are still open, which end now."""
        self._metrics.ended(reason, self._open)
        now = self._metrics.clock()
        self._outcomes += [self._outcome(None, reason, now, error)] * self._open

    def _outcome(self, choice: _ChoiceTimes | None, reason: str, now: float, error: str = "") -> Outcome:
        times = choice.times if choice else ()
        return Outcome(self._arrival, times, now, self._prompt_tokens, reason, error)


class _ChoiceTimes:
    """When the tokens of one choice came."""

    def __init__(self) -> None:
        self.times = array("d")
        """One for each token, in seconds."""

    @property
    def first(self) -> float:
        return self.times[0]

    @property
    def latest(self) -> float:
        return self.times[-1]

    @property
    def tokens(self) -> int:
        return len(self.times)


def _is_refusal(error: BaseException) -> bool:
    """The engine did not take the request. It did take one that the policy gave up later."""
    return isinstance(error, RequestError) and not isinstance(error, Dropped)
