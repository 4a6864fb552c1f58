"""The responses of Ollama's API. Durations are in nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from turnout.server.protocol.responses import ChatTokenLogprob

__all__ = ["CalledTool", "ChatPart", "GeneratePart", "Said", "ToolCalled", "Totals"]


class CalledTool(msgspec.Struct):
    """The function of a call."""

    index: int
    name: str
    arguments: msgspec.Raw


class ToolCalled(msgspec.Struct):
    """A tool call, complete."""

    id: str
    function: CalledTool


class Said(msgspec.Struct):
    """A piece of the assistant's message, or all of it."""

    role: str
    content: str
    thinking: str | UnsetType = UNSET
    tool_calls: list[ToolCalled] | UnsetType = UNSET


class Totals(msgspec.Struct, kw_only=True):
    """What an answer took; only its last object has it."""

    done: bool = False
    done_reason: str | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET
    logprobs: Sequence[ChatTokenLogprob] | UnsetType = UNSET


class ChatPart(Totals, kw_only=True):
    """A piece of an answer to ``/api/chat``, or all of it."""

    model: str
    created_at: str
    message: Said


class GeneratePart(Totals, kw_only=True):
    """A piece of an answer to ``/api/generate``, or all of it."""

    model: str
    created_at: str
    response: str
    thinking: str | UnsetType = UNSET
    context: list[int] | UnsetType = UNSET
