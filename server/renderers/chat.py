"""Renders responses of ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from turnout.server.generation.generation import Generation
from turnout.server.protocol.responses import (
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Envelope,
)
from turnout.server.renderers.chat_parts import ROLE, delta_of, finish_reason, message_of
from turnout.server.renderers.logprobs import chat_logprobs, prompt_logprobs
from turnout.server.renderers.openai import OpenAIRenderer, or_unset
from turnout.server.renderers.renderer import event_pieces
from turnout.text.choice_text import ShownToken, TextDelta
from turnout.text.output.events import ToolEnd, merged

__all__ = ["ChatRenderer"]


@dataclass(frozen=True)
class ChatRenderer(OpenAIRenderer):
    """Each choice is a message of the assistant."""

    object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def opening(self, choice: int, generation: Generation) -> Iterable[bytes]:
        role = ChatDelta(role=ROLE, content="")
        chunk = self._chunk(ChatChunkChoice(choice, role, None, None), 0, generation)
        self._add_prompt(chunk, choice, generation)
        return event_pieces(chunk)

    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        if generation.splitter is not None:
            return self._parts(delta, generation)
        if delta.finish_reason is None and (frame := self.frame(delta.index, generation)):
            return frame.around(delta.text)
        events, tokens = b"", self._token_ids(delta)
        if delta.text or delta.shown or delta.finish_reason is None:
            choice = self._of_text(delta.index, delta.text)
            choice.logprobs, choice.token_ids = self._logprobs(delta.shown), tokens
            events = self._event(choice, delta, generation)
            tokens = [] if self.options.token_ids else UNSET
        if delta.finish_reason is not None:
            events += self._event(_last(delta, tokens), delta, generation)
        return events

    def _of_text(self, index: int, text: str) -> ChatChunkChoice:
        return ChatChunkChoice(index, ChatDelta(content=text), None, None)

    def _parts(self, delta: TextDelta, generation: Generation) -> bytes:
        """The events of a delta whose text is told apart: one for each part, then the last of a choice."""
        tokens, logprobs = self._token_ids(delta), self._logprobs(delta.answered)
        parts: list[ChatDelta] = [
            delta_of(event) for event in merged(delta.events) if not isinstance(event, ToolEnd)
        ]
        if delta.answered and not any(isinstance(part.content, str) for part in parts):
            parts.insert(0, ChatDelta(content=""))  # what ends them was white space before a call
        if not parts and tokens and delta.finish_reason is None:
            parts = [ChatDelta()]
        events = b""
        for part in parts:
            choice = ChatChunkChoice(delta.index, part, self._logprobs(()), None, token_ids=tokens)
            if isinstance(part.content, str):
                choice.logprobs, logprobs = logprobs, self._logprobs(())
            events += self._event(choice, delta, generation)
            tokens = [] if self.options.token_ids else UNSET
        if delta.finish_reason is not None:
            events += self._event(_last(delta, tokens), delta, generation)
        return events

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> Envelope:
        envelope = self.envelope([self._choice(choice, generation) for choice in choices], generation)
        self._add_prompt(envelope, 0, generation)
        return envelope

    def _add_prompt(self, envelope: Envelope, choice: int, generation: Generation) -> None:
        """Add what the client wants to know of the prompt."""
        prompt = generation.prompt_of(choice)
        if prompt is not None:
            envelope.prompt_logprobs = prompt_logprobs(self.names.tokenizer, prompt)
        if self.options.token_ids:
            envelope.prompt_token_ids = generation.request_of(choice).prompt

    def _event(self, choice: ChatChunkChoice, delta: TextDelta, generation: Generation) -> bytes:
        chunk = self._chunk(choice, delta.token_count, generation)
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"  # an `event`, without a call for each token

    def _choice(self, choice: TextDelta, generation: Generation) -> ChatChoice:
        return ChatChoice(
            choice.index,
            ChatMessage(ROLE, choice.text) if generation.splitter is None else message_of(choice.events),
            self._logprobs(choice.shown if generation.splitter is None else choice.answered),
            finish_reason(choice),
            choice.stop_reason,
            or_unset(choice.cumulative_logprob),
            or_unset(choice.score),
            self._token_ids(choice),
        )

    def _logprobs(self, shown: Sequence[ShownToken]) -> ChatLogprobs | None:
        return chat_logprobs(self.names, shown) if self.options.logprobs else None


def _last(delta: TextDelta, tokens: Sequence[int] | UnsetType) -> ChatChunkChoice:
    return ChatChunkChoice(
        delta.index,
        ChatDelta(),
        None,
        finish_reason(delta),
        delta.stop_reason,
        or_unset(delta.cumulative_logprob),
        or_unset(delta.score),
        tokens,
    )
