"""Answers of ``/v1/completions``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from msgspec import UNSET

from turnout.server.answer import Answer
from turnout.server.generation import Update
from turnout.server.logprobs import completion_logprobs
from turnout.server.protocol.responses import CompletionChoice

__all__ = ["CompletionAnswer"]


@dataclass(frozen=True)
class CompletionAnswer(Answer):
    echoes: Sequence[str]
    """For each choice, what precedes its text: its prompt when the client wants it back."""

    object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    def opening(self, index: int) -> CompletionChoice | None:
        echo = self.echoes[index]
        return CompletionChoice(index, echo, None, None) if echo else None

    def chunks(self, update: Update) -> Iterable[CompletionChoice]:
        yield self._choice(update, "")

    def whole(self, update: Update) -> CompletionChoice:
        return self._choice(update, self.echoes[update.choice])

    def _choice(self, update: Update, echo: str) -> CompletionChoice:
        index, piece = update
        return CompletionChoice(
            index,
            echo + piece.text,
            completion_logprobs(self.tokenizer, piece.shown) if self.logprobs else None,
            piece.finish_reason,
            piece.stop_reason if piece.finish_reason else UNSET,
        )
