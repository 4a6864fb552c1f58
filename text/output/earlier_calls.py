"""The calls of earlier messages, as chat templates take them: of functions, whose arguments are objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnout.core.errors import RequestError
from turnout.text.output.custom_tools import as_function_call

__all__ = ["with_calls_read"]

Message = Mapping[str, Any]


def with_calls_read(messages: Sequence[Message]) -> list[Message]:
    """The messages with their calls' arguments read, and calls of other forms as functions' calls.

    Raises RequestError for a call that is none.
    """
    return [_read(number, message) for number, message in enumerate(messages)]


def _read(number: int, message: Message) -> Message:
    if message.get("role") == "function":
        message = {**message, "role": "tool"}
    if isinstance(older := message.get("function_call"), dict):
        kept = {key: value for key, value in message.items() if key != "function_call"}
        message = {**kept, "tool_calls": [{"type": "function", "function": older}]}
    calls = message.get("tool_calls")
    if not calls:
        return message
    if not isinstance(calls, list):
        raise RequestError(f"messages[{number}].tool_calls should be a list of calls", "messages")
    return {
        **message,
        "tool_calls": [_call(f"messages[{number}].tool_calls[{n}]", c) for n, c in enumerate(calls)],
    }


def _call(where: str, call: Any) -> Mapping[str, Any]:
    if isinstance(call, dict) and call.get("type") == "custom":
        return as_function_call(where, call)
    function = call.get("function") if isinstance(call, dict) else None
    if not (isinstance(function, dict) and isinstance(function.get("name"), str)):
        raise RequestError(f"{where} should have a function with a name", "messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            raise RequestError(
                f"{where}.function.arguments should be the JSON of an object", "messages"
            ) from None
    if not isinstance(arguments, dict | None):
        raise RequestError(f"{where}.function.arguments should be the JSON of an object", "messages")
    return {**call, "function": {**function, "arguments": arguments or {}}}
