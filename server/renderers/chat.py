"""Renders responses of ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
from msgspec import UNSET

from turnout.server.generation.generation import Generation
from turnout.server.protocol.responses import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Envelope,
)
from turnout.server.renderers.logprobs import chat_logprobs, prompt_logprobs
from turnout.server.renderers.openai import OpenAIRenderer, or_unset
from turnout.text.choice_text import ShownToken, TextDelta

__all__ = ["ChatRenderer"]

ROLE = "assistant"


@dataclass(frozen=True)
class ChatRenderer(OpenAIRenderer):
    """Each choice is a message of the assistant."""

    object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def opening(self, choices: int) -> bytes:
        role = ChatDelta(role=ROLE, content="")
        return b"".join(self._event(ChatChunkChoice(index, role, None, None)) for index in range(choices))

    def delta(self, delta: TextDelta) -> bytes:
        events = b""
        if delta.text or delta.shown:
            content, logprobs = ChatDelta(content=delta.text), self._logprobs(delta.shown)
            events = self._event(ChatChunkChoice(delta.index, content, logprobs, None))
        if delta.finish_reason is not None:
            events += self._event(_last(delta))
        return events

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> Envelope:
        envelope = self.envelope([self._choice(choice) for choice in choices], generation)
        prompt = generation.prompt_of(0)
        if prompt is not None:
            envelope.prompt_logprobs = prompt_logprobs(self.tokenizer, prompt)
        return envelope

    def _event(self, choice: ChatChunkChoice) -> bytes:
        usage = None if self.include_usage else UNSET
        chunk = Envelope(self.id, self.chunk_object, self.created, self.model, [choice], usage)
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"  # an `event`, without a call for each token

    def _choice(self, choice: TextDelta) -> ChatChoice:
        return ChatChoice(
            choice.index,
            ChatMessage(ROLE, choice.text),
            self._logprobs(choice.shown),
            choice.finish_reason,
            choice.stop_reason,
            or_unset(choice.cumulative_logprob),
            or_unset(choice.score),
        )

    def _logprobs(self, shown: Sequence[ShownToken]) -> ChatLogprobs | None:
        return chat_logprobs(self.tokenizer, shown) if self.logprobs else None


def _last(delta: TextDelta) -> ChatChunkChoice:
    return ChatChunkChoice(
        delta.index,
        ChatDelta(),
        None,
        delta.finish_reason,
        delta.stop_reason,
        or_unset(delta.cumulative_logprob),
        or_unset(delta.score),
    )
