"""The parts of an output as a message of OpenAI's chat API: text, reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from msgspec import UNSET

from turnout.server.protocol.responses import (
    CalledCustom,
    CalledFunction,
    ChatDelta,
    ChatMessage,
    ToolCall,
    ToolCallDelta,
)
from turnout.text.choice_text import TextDelta
from turnout.text.output.events import Event, Reasoning, Text, ToolArguments, ToolBegin, ToolInput

__all__ = ["ROLE", "call_id", "delta_of", "finish_reason", "message_of"]

ROLE = "assistant"


def delta_of(event: Event) -> ChatDelta:
    """A part as a delta of the message."""
    if isinstance(event, Text):
        return ChatDelta(content=event.text)
    if isinstance(event, Reasoning):
        return ChatDelta(reasoning_content=event.text, reasoning=event.text)
    if isinstance(event, ToolBegin):
        return ChatDelta(tool_calls=[ToolCallDelta(event.index, id=call_id(), **_called(event))])
    if isinstance(event, ToolArguments):
        return ChatDelta(tool_calls=[ToolCallDelta(event.index, CalledFunction(arguments=event.text))])
    if isinstance(event, ToolInput):
        return ChatDelta(tool_calls=[ToolCallDelta(event.index, custom=CalledCustom(input=event.text))])
    return ChatDelta()


def message_of(events: Iterable[Event]) -> ChatMessage:
    """The whole message."""
    text, thoughts = "", ""
    calls: list[ToolCall] = []
    for event in events:
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, Reasoning):
            thoughts += event.text
        elif isinstance(event, ToolBegin):
            calls.append(ToolCall(call_id(), **_called(event)))
        elif isinstance(event, ToolArguments | ToolInput):
            _add(event, calls[-1])
    return ChatMessage(
        ROLE,
        None if calls and not text else text,
        reasoning_content=thoughts or UNSET,
        reasoning=thoughts or UNSET,
        tool_calls=calls or UNSET,
    )


def _called(event: ToolBegin) -> dict[str, Any]:
    """What begins in a call, and its type."""
    if event.custom:
        return {"custom": CalledCustom(event.name), "type": "custom"}
    return {"function": CalledFunction(event.name), "type": "function"}


def _add(event: ToolArguments | ToolInput, call: ToolCall) -> None:
    if isinstance(event, ToolInput):
        assert call.custom is not UNSET
        call.custom.input += event.text
    else:
        assert call.function is not UNSET
        call.function.arguments += event.text


def finish_reason(delta: TextDelta) -> str | None:
    """Why a choice ended, as chat tells it: one that calls tools waits for their results."""
    return "tool_calls" if delta.calls and delta.finish_reason == "stop" else delta.finish_reason


def call_id() -> str:
    """The id of a new tool call."""
    return f"call_{uuid4().hex[:24]}"
