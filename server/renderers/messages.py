"""Renders responses of ``/v1/messages``, Anthropic's API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from turnout.server.generation.generation import Generation
from turnout.server.http.errors import anthropic_error
from turnout.server.protocol.messages.answer import Message, MessageUsage, NamedEvent, OutputTokensDetails
from turnout.server.renderers.call_arguments import arguments_value
from turnout.server.renderers.renderer import Renderer, named_event, parts_of
from turnout.text.choice_text import TextDelta
from turnout.text.output.events import Event, Reasoning, Text, ToolArguments, ToolBegin

__all__ = ["MessagesRenderer"]

Block = dict[str, Any]
SIGNATURE = "dHVybm91dA=="
"""Of thinking blocks. It proves nothing, but clients don't send a block back as it was if it has none."""


@dataclass
class MessagesRenderer(Renderer):
    """The one choice as a message, whose parts are blocks."""

    id: str
    model: str
    _block: int = field(default=-1, init=False)
    """The block that a stream is in."""
    _kind: str = field(default="", init=False)
    """Its type; empty: none is open."""

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> Message:
        (choice,) = choices
        blocks: list[Block] = []
        arguments: dict[int, str] = {}
        for event in parts_of(choice, generation):
            if isinstance(event, ToolArguments):
                arguments[len(blocks) - 1] = arguments.get(len(blocks) - 1, "") + event.text
            elif (block := _block_of(event)) is not None:
                blocks.append(_filled(block, event))
        for index, text in arguments.items():
            blocks[index]["input"] = arguments_value(text)
        return self._message(blocks, _stop_reason(choice), _stop_sequence(choice), _usage(generation))

    def opening(self, choice: int, generation: Generation) -> Iterable[bytes]:
        message = self._message([], None, None, _usage(generation))
        return (_event(NamedEvent("message_start", message=message)), _event(NamedEvent("ping")))

    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        events = b"".join(map(self._part, parts_of(delta, generation)))
        if delta.finish_reason is None:
            return events
        stopped = {"stop_reason": _stop_reason(delta), "stop_sequence": _stop_sequence(delta)}
        end = NamedEvent("message_delta", delta=stopped, usage=_usage(generation))
        return events + self._close() + _event(end)

    def closing(self, generation: Generation) -> bytes:
        return _event(NamedEvent("message_stop"))

    def error(self, error: Exception) -> bytes:
        return named_event("error", anthropic_error(error))

    def end(self) -> bytes:
        return b""

    # -------------------------------------------------------------- details

    def _message(
        self, blocks: list[Block], reason: str | None, sequence: str | None, usage: MessageUsage
    ) -> Message:
        return Message(self.id, self.model, blocks, reason, sequence, usage)

    def _part(self, event: Event) -> bytes:
        """The events of a part, after those that begin its block if it is not the open one."""
        before, block = b"", _block_of(event)
        if block is not None and (block["type"] != self._kind or isinstance(event, ToolBegin)):
            before = self._close()
            self._block, self._kind = self._block + 1, block["type"]
            before += _event(NamedEvent("content_block_start", index=self._block, content_block=block))
        content = _delta_of(event)
        if content is None:
            return before
        return before + _event(NamedEvent("content_block_delta", index=self._block, delta=content))

    def _close(self) -> bytes:
        if not self._kind:
            return b""
        signed = b""
        if self._kind == "thinking":
            signature = {"type": "signature_delta", "signature": SIGNATURE}
            signed = _event(NamedEvent("content_block_delta", index=self._block, delta=signature))
        self._kind = ""
        return signed + _event(NamedEvent("content_block_stop", index=self._block))


def _block_of(event: Event) -> Block | None:
    """The empty block that an event belongs to; None for one that goes on with a call."""
    if isinstance(event, Text):
        return {"type": "text", "text": ""}
    if isinstance(event, Reasoning):
        return {"type": "thinking", "thinking": "", "signature": ""}
    if isinstance(event, ToolBegin):
        return {"type": "tool_use", "id": f"toolu_{uuid4().hex[:24]}", "name": event.name, "input": {}}
    return None


def _filled(block: Block, event: Event) -> Block:
    if isinstance(event, Text):
        return {**block, "text": event.text}
    if isinstance(event, Reasoning):
        return {**block, "thinking": event.text, "signature": SIGNATURE}
    return block


def _delta_of(event: Event) -> Block | None:
    if isinstance(event, Text):
        return {"type": "text_delta", "text": event.text}
    if isinstance(event, Reasoning):
        return {"type": "thinking_delta", "thinking": event.text}
    if isinstance(event, ToolArguments):
        return {"type": "input_json_delta", "partial_json": event.text}
    return None


def _stop_reason(delta: TextDelta) -> str:
    if delta.finish_reason == "length":
        return "max_tokens"
    if isinstance(delta.stop_reason, str):
        return "stop_sequence"
    return "tool_use" if delta.calls else "end_turn"


def _stop_sequence(delta: TextDelta) -> str | None:
    return delta.stop_reason if isinstance(delta.stop_reason, str) else None


def _usage(generation: Generation) -> MessageUsage:
    cached = generation.cached_tokens
    usage = MessageUsage(generation.prompt_tokens - cached, generation.completion_tokens, cached)
    if (thinking := generation.reasoning_tokens) is not None:
        usage.output_tokens_details = OutputTokensDetails(thinking)
    return usage


def _event(event: NamedEvent) -> bytes:
    return named_event(event.type, event)
