"""Conversations as scripts give them: the messages of one, or those of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnout.core.errors import RequestError, map_numbered
from turnout.text.prompt.message_content import content_text

__all__ = ["Message", "given_conversations"]

Message = Mapping[str, Any]
EXAMPLE = "{'role': 'user', 'content': text}"


def given_conversations(messages: Iterable[Message] | Iterable[Iterable[Message]]) -> list[Sequence[Message]]:
    """A single conversation, or each of several, with texts as contents. Raises RequestError."""
    several = _items(messages)
    if several and isinstance(several[0], Mapping):
        return [_conversation(several)]
    return map_numbered("conversation", _conversation, several)


def _conversation(given: Any) -> Sequence[Message]:
    messages = _items(given)
    if not messages:
        raise RequestError("a conversation has at least one message", "messages")
    return [_message(number, message) for number, message in enumerate(messages)]


def _message(number: int, message: Any) -> Message:
    if not isinstance(message, Mapping):
        raise RequestError(f"a message is such as {EXAMPLE}, not {type(message).__name__}", "messages")
    if not isinstance(message.get("role"), str):
        raise RequestError(f"a message has a text as its role, not {message.get('role')!r}", "messages")
    try:
        content = content_text(message.get("content"))
    except ValueError as error:
        raise RequestError(f"messages[{number}].content: {error}", "messages") from None
    return {**message, "content": content} if "content" in message else message


def _items(given: Any) -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise RequestError(
            f"a conversation is a list of messages such as {EXAMPLE}, not {type(given).__name__}", "messages"
        )
    return list(given)
