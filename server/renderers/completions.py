"""Renders responses of ``/v1/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
from msgspec import UNSET

from turnout.server.generation.generation import Generation, ScoredPrompt
from turnout.server.protocol.responses import CompletionChoice, CompletionLogprobs, Envelope
from turnout.server.renderers.logprobs import completion_logprobs, echo_logprobs, joined, prompt_logprobs
from turnout.server.renderers.openai import OpenAIRenderer, or_unset
from turnout.text.choice_text import ShownToken, TextDelta

__all__ = ["CompletionRenderer"]


@dataclass(frozen=True)
class CompletionRenderer(OpenAIRenderer):
    """Each choice is text that follows its prompt, which an echo repeats."""

    top_logprobs: int
    """How many of the most likely tokens to show in an echo."""
    prompt_logprobs: bool
    """The client asked for the prompt's log-probabilities beside those of an echo."""
    echoes: Sequence[str]
    """For each choice, what precedes its text: its prompt, if the client wants it back, or nothing."""

    object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    def opening(self, choices: int) -> bytes:
        echoes = enumerate(self.echoes[:choices])
        return b"".join(
            self._event(CompletionChoice(index, echo, None, None)) for index, echo in echoes if echo
        )

    def delta(self, delta: TextDelta) -> bytes:
        if delta.finish_reason is not None:
            return self._event(self._finished(delta))
        return self._event(CompletionChoice(delta.index, delta.text, self._logprobs(delta.shown), None))

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> Envelope:
        return self.envelope(
            [self._choice(choice, generation.prompt_of(choice.index)) for choice in choices], generation
        )

    def _event(self, choice: CompletionChoice) -> bytes:
        usage = None if self.include_usage else UNSET
        chunk = Envelope(self.id, self.chunk_object, self.created, self.model, [choice], usage)
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"  # an `event`, without a call for each token

    def _choice(self, whole: TextDelta, prompt: ScoredPrompt | None) -> CompletionChoice:
        choice = self._finished(whole)
        echo = self.echoes[whole.index]
        choice.text = echo + choice.text
        if prompt is not None and self.prompt_logprobs:
            choice.prompt_logprobs = prompt_logprobs(self.tokenizer, prompt)
        if prompt is not None and echo and choice.logprobs is not None:
            echoed = echo_logprobs(self.tokenizer, prompt, self.top_logprobs)
            choice.logprobs = joined(echoed, choice.logprobs, len(echo))
        return choice

    def _finished(self, delta: TextDelta) -> CompletionChoice:
        return CompletionChoice(
            delta.index,
            delta.text,
            self._logprobs(delta.shown),
            delta.finish_reason,
            delta.stop_reason,
            cumulative_logprob=or_unset(delta.cumulative_logprob),
            beam_score=or_unset(delta.score),
        )

    def _logprobs(self, shown: Sequence[ShownToken]) -> CompletionLogprobs | None:
        return completion_logprobs(self.tokenizer, shown) if self.logprobs else None
