"""Renders responses of Ollama's ``/api/chat`` and ``/api/generate``: JSON objects, a line each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, UnsetType

from turnout.core.clock import monotonic
from turnout.server.generation.generation import Generation
from turnout.server.http.errors import ollama_error
from turnout.server.protocol.ollama.responses import (
    CalledTool,
    ChatPart,
    GeneratePart,
    Said,
    ToolCalled,
    Totals,
)
from turnout.server.protocol.responses import ChatTokenLogprob
from turnout.server.renderers.call_arguments import arguments_value
from turnout.server.renderers.chat_parts import ROLE, call_id
from turnout.server.renderers.logprobs import chat_logprobs
from turnout.server.renderers.renderer import Renderer, parts_of
from turnout.server.renderers.token_names import TokenNames
from turnout.text.choice_text import TextDelta
from turnout.text.output.events import Event, Reasoning, Text, ToolArguments, ToolBegin, ToolEnd

__all__ = ["NDJSON", "OllamaChatRenderer", "OllamaGenerateRenderer", "OllamaRenderer", "now"]

NDJSON = "application/x-ndjson"
NANOSECONDS = 10**9


@dataclass
class OllamaRenderer(Renderer):
    """The one choice. What both paths have in common: all but the name of the text."""

    model: str
    """As the client named it."""
    names: TokenNames
    logprobs: bool
    loading: float = 0.0
    """Seconds for which the request waited until its model was loaded."""
    begun: float = field(default_factory=monotonic)
    """When the model was there, in seconds."""
    _end: TextDelta | None = field(default=None, init=False)
    _untold: list[ChatTokenLogprob] = field(default_factory=list, init=False)
    """Log-probabilities of tokens that no line has told yet, such as those of a call that goes on."""
    _calls: _Calls = field(default_factory=lambda: _Calls(), init=False)

    media_type = NDJSON

    @abstractmethod
    def part(self, text: str, thoughts: str, calls: list[ToolCalled]) -> Totals:
        """An object with so much of the answer."""

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> msgspec.Struct:
        (choice,) = choices
        events = parts_of(choice, generation)
        body = self._of(events)
        body.logprobs = self._logprobs(choice)
        self._finish(body, choice, generation)
        return body

    def opening(self, choice: int, generation: Generation) -> Sequence[bytes]:
        return ()

    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        lines = b""
        self._untold += self._logprobs(delta) or ()
        for event in parts_of(delta, generation) or ([Text("")] if delta.shown and self.logprobs else []):
            part = self._of([event])
            if isinstance(event, ToolBegin | ToolArguments):
                continue  # a call comes whole
            self._tell_logprobs(part)
            lines += _line(part)
        if delta.finish_reason is not None:
            self._end = delta
        return lines

    def closing(self, generation: Generation) -> bytes:
        body = self.part("", "", [])
        if self._end is not None:
            self._finish(body, self._end, generation)
        self._tell_logprobs(body)
        return _line(body)

    def error(self, error: Exception) -> bytes:
        return _line(ollama_error(error))

    def end(self) -> bytes:
        return b""

    # -------------------------------------------------------------- details

    def _of(self, events: Iterable[Event]) -> Totals:
        text = thoughts = ""
        calls: list[ToolCalled] = []
        for event in events:
            if isinstance(event, Text):
                text += event.text
            elif isinstance(event, Reasoning):
                thoughts += event.text
            else:
                calls += self._calls.feed(event)
        return self.part(text, thoughts, calls)

    def _finish(self, body: Totals, choice: TextDelta, generation: Generation) -> None:
        now = monotonic()
        first = generation.first_token_at or now
        body.done, body.done_reason = True, choice.finish_reason or "stop"
        body.total_duration = _nanoseconds(self.loading + now - self.begun)
        body.load_duration = _nanoseconds(self.loading)
        body.prompt_eval_count = generation.prompt_tokens
        body.prompt_eval_duration = _nanoseconds(first - self.begun)
        body.eval_count = generation.completion_tokens
        body.eval_duration = max(1, _nanoseconds(now - first))

    def _tell_logprobs(self, body: Totals) -> None:
        """Give a line the log-probabilities that none has told yet."""
        body.logprobs, self._untold = self._untold or UNSET, []

    def _logprobs(self, delta: TextDelta) -> Sequence[ChatTokenLogprob] | UnsetType:
        return chat_logprobs(self.names, delta.shown).content if self.logprobs else UNSET


@dataclass
class OllamaChatRenderer(OllamaRenderer):
    """A message of the assistant."""

    def part(self, text: str, thoughts: str, calls: list[ToolCalled]) -> ChatPart:
        message = Said(ROLE, text, thoughts or UNSET, calls or UNSET)
        return ChatPart(model=self.model, created_at=now(), message=message)


@dataclass
class OllamaGenerateRenderer(OllamaRenderer):
    """Text."""

    context: list[int] | None = None
    """The prompt and what has come so far; None: the client is not told."""

    def part(self, text: str, thoughts: str, calls: list[ToolCalled]) -> GeneratePart:
        return GeneratePart(model=self.model, created_at=now(), response=text, thinking=thoughts or UNSET)

    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        if self.context is not None:
            self.context += delta.tokens
        return super().delta(delta, generation)

    def _finish(self, body: Totals, choice: TextDelta, generation: Generation) -> None:
        super()._finish(body, choice, generation)
        if self.context is not None and isinstance(body, GeneratePart):
            body.context = self.context

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> msgspec.Struct:
        if self.context is not None:
            self.context += choices[0].tokens
        return super().whole(choices, generation)


class _Calls:
    """Collects the pieces of a call: Ollama's clients get each whole."""

    def __init__(self) -> None:
        self._name = self._arguments = ""

    def feed(self, event: Event) -> list[ToolCalled]:
        """The call that an event completes, if it does."""
        if isinstance(event, ToolBegin):
            self._name, self._arguments = event.name, ""
        elif isinstance(event, ToolArguments):
            self._arguments += event.text
        elif isinstance(event, ToolEnd):
            called = CalledTool(event.index, self._name, arguments_value(self._arguments))
            return [ToolCalled(call_id(), called)]
        return []


def now() -> str:
    """The time, as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _line(content: msgspec.Struct) -> bytes:
    return msgspec.json.encode(content) + b"\n"


def _nanoseconds(seconds: float) -> int:
    return round(seconds * NANOSECONDS)
