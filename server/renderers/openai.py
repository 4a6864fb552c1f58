"""What the responses of completions and chat, OpenAI's two APIs, have in common: all but the choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from msgspec import UNSET, UnsetType

from turnout.core.types.request import Timing
from turnout.server.generation.generation import Generation
from turnout.server.protocol.responses import (
    Envelope,
    PromptTokensDetails,
    TimedEnvelope,
    TimingReport,
    Timings,
    Usage,
    WireChoice,
)
from turnout.server.renderers.renderer import Renderer, event
from turnout.text.tokenizer import Tokenizer

__all__ = ["OpenAIRenderer", "or_unset"]


@dataclass(frozen=True)
class OpenAIRenderer(Renderer):
    """Renders the envelope around the choices."""

    id: str
    model: str
    created: int
    tokenizer: Tokenizer
    logprobs: bool
    """The client asked for log-probabilities."""
    include_usage: bool
    """The client asked for the usage in a last event; the field is then in every event."""

    object: ClassVar[str]
    chunk_object: ClassVar[str]

    def envelope(self, choices: list[WireChoice], generation: Generation) -> Envelope:
        """A response in one piece."""
        return self._envelope(self.object, choices, _usage(generation), _timing(generation))

    def closing(self, generation: Generation) -> bytes:
        timing = _timing(generation)
        if not self.include_usage and timing is UNSET:
            return b""
        usage = _usage(generation) if self.include_usage else UNSET
        return event(self._envelope(self.chunk_object, [], usage, timing))

    def _envelope(
        self, kind: str, choices: list[WireChoice], usage: Usage | UnsetType, timing: Timings | UnsetType
    ) -> Envelope:
        if timing is UNSET:
            return Envelope(self.id, kind, self.created, self.model, choices, usage)
        return TimedEnvelope(self.id, kind, self.created, self.model, choices, usage, timing=timing)


def or_unset(value: float | None) -> float | UnsetType:
    """A field that is left out where its value is not known."""
    return UNSET if value is None else value


def _usage(generation: Generation) -> Usage:
    prompt, completion = generation.prompt_tokens, generation.completion_tokens
    return Usage(prompt, completion, prompt + completion, PromptTokensDetails(generation.cached_tokens))


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
