"""What the responses of completions and chat, OpenAI's two APIs, have in common: all but the choices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from turnout.core.types.request import Timing
from turnout.server.generation.generation import Generation
from turnout.server.protocol.base import GenerationRequest
from turnout.server.protocol.responses import (
    CompletionTokensDetails,
    Envelope,
    PromptTokensDetails,
    TimedEnvelope,
    TimingReport,
    Timings,
    Usage,
    WireChoice,
)
from turnout.server.renderers.renderer import Renderer, event
from turnout.server.renderers.token_names import TokenNames
from turnout.text.choice_text import TextDelta

__all__ = ["OpenAIRenderer", "ResponseOptions", "or_unset"]


@dataclass(frozen=True)
class ResponseOptions:
    """Which optional fields of a response the client asked for."""

    logprobs: bool
    usage: bool
    """The usage in a last event; the field is then in every event."""
    usage_in_chunks: bool
    """The usage so far in every event: of its choice, and of the choice's prompt."""
    token_ids: bool

    @classmethod
    def of(cls, body: GenerationRequest) -> ResponseOptions:
        return cls(
            logprobs=body.logprob_count() is not None,
            usage=body.include_usage,
            usage_in_chunks=body.continuous_usage,
            token_ids=bool(body.return_token_ids),
        )


MARK = "the text of a token"
"""Stands for it in an event, where it is the last string like this."""


class Frame(NamedTuple):
    """The bytes around a text in an event. To encode them again for each token takes eight times as long."""

    before: bytes
    after: bytes

    def around(self, text: str) -> bytes:
        return self.before + encode(text) + self.after


encode = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class OpenAIRenderer(Renderer):
    """Renders the envelope around the choices."""

    id: str
    model: str
    created: int
    fingerprint: str | None
    names: TokenNames
    options: ResponseOptions

    object: ClassVar[str]
    chunk_object: ClassVar[str]

    frames: dict[int, Frame] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By choice."""

    def frame(self, index: int, generation: Generation) -> Frame | None:
        """What is around the text of a choice's events, but the last; None where they differ in more."""
        frame = self.frames.get(index)
        if frame is None and not (self.options.logprobs or self.options.token_ids or self._counts):
            before, _, after = event(self._chunk(self._of_text(index, MARK), 0, generation)).rpartition(
                msgspec.json.encode(MARK)
            )
            frame = self.frames[index] = Frame(before, after)
        return frame

    @property
    def _counts(self) -> bool:
        return self.options.usage and self.options.usage_in_chunks

    @abstractmethod
    def _of_text(self, index: int, text: str) -> WireChoice:
        """The part of a choice that is text alone."""

    def envelope(self, choices: list[WireChoice], generation: Generation) -> Envelope:
        """A response in one piece."""
        return self._envelope(self.object, choices, _usage(generation), _timing(generation))

    def closing(self, generation: Generation) -> bytes:
        timing = _timing(generation)
        if not self.options.usage and timing is UNSET:
            return b""
        usage = _usage(generation) if self.options.usage else UNSET
        return event(self._envelope(self.chunk_object, [], usage, timing))

    def _envelope(
        self, kind: str, choices: list[WireChoice], usage: Usage | UnsetType, timing: Timings | UnsetType
    ) -> Envelope:
        head = (self.id, kind, self.created, self.model, self.fingerprint)
        if timing is UNSET:
            return Envelope(*head, choices, usage)
        return TimedEnvelope(*head, choices, usage, timing=timing)

    def _chunk(self, choice: WireChoice, tokens: int, generation: Generation) -> Envelope:
        """A chunk of a choice that has so many tokens by now."""
        usage: Usage | UnsetType | None = UNSET
        if self.options.usage:
            usage = self._usage_of(choice.index, tokens, generation) if self.options.usage_in_chunks else None
        return Envelope(
            self.id, self.chunk_object, self.created, self.model, self.fingerprint, [choice], usage
        )

    def _usage_of(self, choice: int, tokens: int, generation: Generation) -> Usage:
        """The usage of one choice so far, and of its prompt."""
        return _usage_sum(len(generation.request_of(choice).prompt), tokens, generation.cached_of(choice))

    def _token_ids(self, delta: TextDelta) -> Sequence[int] | UnsetType:
        return delta.tokens if self.options.token_ids else UNSET


def or_unset(value: float | None) -> float | UnsetType:
    """A field that is left out where its value is not known."""
    return UNSET if value is None else value


def _usage(generation: Generation) -> Usage:
    usage = _usage_sum(generation.prompt_tokens, generation.completion_tokens, generation.cached_tokens)
    if (reasoning := generation.reasoning_tokens) is not None:
        usage.completion_tokens_details = CompletionTokensDetails(reasoning)
    return usage


def _usage_sum(prompt: int, completion: int, cached: int) -> Usage:
    return Usage(prompt, completion, prompt + completion, PromptTokensDetails(cached))


def _timing(generation: Generation) -> Timings | UnsetType:
    timings = generation.timings
    if timings is None:
        return UNSET
    reports = [_report(timing) for timing in timings]
    return reports[0] if len(reports) == 1 else reports


def _report(timing: Timing | None) -> TimingReport | None:
    if timing is None:
        return None

    def after_arrival(seconds: float) -> float:
        return round(1000 * (seconds - timing.arrival), 3)

    scheduled, first_token, finished = (
        None if when is None else after_arrival(when)
        for when in (timing.scheduled, timing.first_token, timing.finished)
    )
    return TimingReport(scheduled, first_token, finished, [after_arrival(when) for when in timing.preempted])
