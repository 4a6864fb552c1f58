"""Answers of ``/v1/completions``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from msgspec import UNSET

from turnout.server.api.answer import Answer, ranks
from turnout.server.api.generation import ScoredPrompt, Update
from turnout.server.api.logprobs import completion_logprobs, echo_logprobs, joined, prompt_logprobs
from turnout.server.protocol.responses import CompletionChoice

__all__ = ["CompletionAnswer"]


@dataclass(frozen=True)
class CompletionAnswer(Answer):
    top_logprobs: int
    """How many of the likeliest tokens to show in an echo."""
    prompt_logprobs: bool
    """The client asked for the prompt's log-probabilities beside those of an echo."""
    echoes: Sequence[str]
    """For each choice, what precedes its text: its prompt when the client wants it back."""

    object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    def opening(self, index: int) -> CompletionChoice | None:
        echo = self.echoes[index]
        return CompletionChoice(index, echo, None, None) if echo else None

    def chunks(self, update: Update) -> Iterable[CompletionChoice]:
        yield self._choice(update)

    def whole(self, update: Update, prompt: ScoredPrompt | None) -> CompletionChoice:
        choice = self._choice(update)
        echo = self.echoes[update.choice]
        choice.text = echo + choice.text
        if prompt is not None and self.prompt_logprobs:
            choice.prompt_logprobs = prompt_logprobs(self.tokenizer, prompt)
        if prompt is not None and echo and choice.logprobs is not None:
            echoed = echo_logprobs(self.tokenizer, prompt, self.top_logprobs)
            choice.logprobs = joined(echoed, choice.logprobs, len(echo))
        return choice

    def _choice(self, update: Update) -> CompletionChoice:
        index, piece = update
        return CompletionChoice(
            index,
            piece.text,
            completion_logprobs(self.tokenizer, piece.shown) if self.logprobs else None,
            piece.finish_reason,
            piece.stop_reason if piece.finish_reason else UNSET,
            **ranks(piece),
        )
