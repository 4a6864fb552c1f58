"""Answers of ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from turnout.server.answer import Answer
from turnout.server.generation import Update
from turnout.server.logprobs import chat_logprobs
from turnout.server.protocol.responses import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
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
            yield ChatChunkChoice(index, ChatDelta(), None, piece.finish_reason, piece.stop_reason)

    def whole(self, update: Update) -> ChatChoice:
        index, piece = update
        message = ChatMessage(ROLE, piece.text)
        return ChatChoice(index, message, self._logprobs(piece), piece.finish_reason, piece.stop_reason)

    def _logprobs(self, piece: Piece) -> ChatLogprobs | None:
        return chat_logprobs(self.tokenizer, piece.shown) if self.logprobs else None
