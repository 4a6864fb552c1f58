"""Renders responses of llama.cpp's ``/infill``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnout.core.clock import monotonic
from turnout.server.generation.generation import Generation
from turnout.server.protocol.infill import Infilled, Timings, chosen_fields
from turnout.server.renderers.renderer import Renderer
from turnout.text.choice_text import TextDelta

__all__ = ["InfillRenderer"]


@dataclass
class InfillRenderer(Renderer):
    """The one choice."""

    model: str
    fields: Sequence[str] | None = None
    """Those of a stream's last event; None: all."""
    begun: float = field(default_factory=monotonic)
    """When the request came, in seconds."""
    _end: TextDelta | None = field(default=None, init=False)

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> Infilled:
        (choice,) = choices
        return self._last(choice.text, choice, generation)

    def opening(self, choice: int, generation: Generation) -> Sequence[bytes]:
        return ()

    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        if delta.finish_reason is not None:
            self._end = delta
        if not delta.text:
            return b""
        return _event(self._piece(delta.text, generation))

    def closing(self, generation: Generation) -> bytes:
        if self._end is None:
            return b""
        return _event(chosen_fields(self._last("", self._end, generation), self.fields))

    def end(self) -> bytes:
        return b""

    # -------------------------------------------------------------- details

    def _piece(self, text: str, generation: Generation) -> Infilled:
        return Infilled(0, text, False, self.model, generation.completion_tokens, generation.prompt_tokens)

    def _last(self, text: str, choice: TextDelta, generation: Generation) -> Infilled:
        body = self._piece(text, generation)
        word = choice.stop_reason if isinstance(choice.stop_reason, str) else ""
        body.stop, body.stopping_word, body.truncated = True, word, False
        body.stop_type = "limit" if choice.finish_reason == "length" else "word" if word else "eos"
        body.tokens_cached = generation.prompt_tokens + generation.completion_tokens
        body.timings = self._timings(generation)
        return body

    def _timings(self, generation: Generation) -> Timings:
        now = monotonic()
        first = generation.first_token_at or now
        cached = generation.cached_tokens
        prompt = _pace(generation.prompt_tokens - cached, first - self.begun)
        return Timings(cached, *prompt, *_pace(generation.completion_tokens, now - first))


def _pace(tokens: int, seconds: float) -> tuple[int, float, float, float]:
    """How many tokens, in how many milliseconds, for each, and how many a second."""
    seconds = max(seconds, 1e-6)
    return tokens, 1000 * seconds, 1000 * seconds / max(tokens, 1), tokens / seconds


def _event(content: Infilled | dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"
