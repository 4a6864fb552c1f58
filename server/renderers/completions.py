"""Renders responses of ``/v1/completions``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
from msgspec import UNSET

from turnout.server.generation.generation import Generation
from turnout.server.protocol.responses import CompletionChoice, CompletionLogprobs, Envelope
from turnout.server.renderers.logprobs import completion_logprobs, echo_logprobs, joined, prompt_logprobs
from turnout.server.renderers.openai import OpenAIRenderer, or_unset
from turnout.server.renderers.renderer import event_pieces
from turnout.text.choice_text import TextDelta

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

    def opening(self, choice: int, generation: Generation) -> Iterable[bytes]:
        first = self._of_prompt(choice, generation)
        if first.text or first.prompt_logprobs is not UNSET or first.prompt_token_ids is not UNSET:
            return event_pieces(self._chunk(first, 0, generation))
        return ()

    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        if delta.finish_reason is not None:
            choice = self._finished(delta)
        elif frame := self.frame(delta.index, generation):
            return frame.around(delta.text)
        else:
            choice = self._of_text(delta.index, delta.text)
            choice.logprobs, choice.token_ids = self._logprobs(delta), self._token_ids(delta)
        chunk = self._chunk(choice, delta.token_count, generation)
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"  # an `event`, without a call for each token

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> Envelope:
        return self.envelope([self._choice(choice, generation) for choice in choices], generation)

    def _of_text(self, index: int, text: str) -> CompletionChoice:
        return CompletionChoice(index, text, None, None)

    def _choice(self, whole: TextDelta, generation: Generation) -> CompletionChoice:
        choice, prompt = self._finished(whole), self._of_prompt(whole.index, generation)
        choice.text = prompt.text + choice.text
        choice.prompt_logprobs, choice.prompt_token_ids = prompt.prompt_logprobs, prompt.prompt_token_ids
        if prompt.logprobs is not None and choice.logprobs is not None:
            choice.logprobs = joined(prompt.logprobs, choice.logprobs)
        return choice

    def _of_prompt(self, index: int, generation: Generation) -> CompletionChoice:
        """The part of a choice that comes before its own text: what the client wants of the prompt."""
        echo, prompt = self.echoes[index], generation.prompt_of(index)
        choice = CompletionChoice(index, echo, None, None)
        if self.options.token_ids:
            choice.prompt_token_ids, choice.token_ids = generation.request_of(index).prompt, []
        if prompt is not None and self.prompt_logprobs:
            choice.prompt_logprobs = prompt_logprobs(self.names.tokenizer, prompt)
        if prompt is not None and echo and self.options.logprobs:
            choice.logprobs = echo_logprobs(self.names, prompt, echo, self.top_logprobs)
        return choice

    def _finished(self, delta: TextDelta) -> CompletionChoice:
        return CompletionChoice(
            delta.index,
            delta.text,
            self._logprobs(delta),
            delta.finish_reason,
            delta.stop_reason,
            cumulative_logprob=or_unset(delta.cumulative_logprob),
            beam_score=or_unset(delta.score),
            token_ids=self._token_ids(delta),
        )

    def _logprobs(self, delta: TextDelta) -> CompletionLogprobs | None:
        if not self.options.logprobs:
            return None
        return completion_logprobs(self.names, delta.shown, start=len(self.echoes[delta.index]))
