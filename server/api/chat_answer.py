"""Answers of ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from turnout.server.api.answer import Answer, ranks
from turnout.server.api.generation import Generation, ScoredPrompt, Update
from turnout.server.api.logprobs import chat_logprobs, prompt_logprobs
from turnout.server.protocol.responses import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Choice,
    Envelope,
)
from turnout.text.choice import Piece

__all__ = ["ChatAnswer"]

ROLE = "assistant"


@dataclass(frozen=True)
class ChatAnswer(Answer):
    object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def opening(self, index: int) -> ChatChunkChoice:
        return ChatChunkChoice(index, ChatDelta(role=ROLE, content=""), None, None)

    def chunks(self, update: Update) -> Iterable[ChatChunkChoice]:
        index, piece = update
        if piece.text or piece.shown:
            yield ChatChunkChoice(index, ChatDelta(content=piece.text), self._logprobs(piece), None)
        if piece.finish_reason:
            yield ChatChunkChoice(
                index, ChatDelta(), None, piece.finish_reason, piece.stop_reason, **ranks(piece)
            )

    def whole(self, update: Update, prompt: ScoredPrompt | None) -> ChatChoice:
        index, piece = update
        message = ChatMessage(ROLE, piece.text)
        return ChatChoice(
            index, message, self._logprobs(piece), piece.finish_reason, piece.stop_reason, **ranks(piece)
        )

    def envelope(self, choices: list[Choice], generation: Generation) -> Envelope:
        envelope = super().envelope(choices, generation)
        prompt = generation.prompt_of(0)
        if prompt is not None:
            envelope.prompt_logprobs = prompt_logprobs(self.tokenizer, prompt)
        return envelope

    def _logprobs(self, piece: Piece) -> ChatLogprobs | None:
        return chat_logprobs(self.tokenizer, piece.shown) if self.logprobs else None
