"""Items of a conversation as a stored response shows them: each with an id, and its texts as parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

__all__ = ["DeletedResponse", "ItemList", "stored_items"]

Item = dict[str, Any]
PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
}


class ItemList(msgspec.Struct):
    """A page of items."""

    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool
    """There are items after the last of these."""
    object: str = "list"


class DeletedResponse(msgspec.Struct):
    """What deleting a response answers."""

    id: str
    deleted: bool = True
    object: str = "response"


def stored_items(items: Sequence[Item]) -> list[Item]:
    """The items of a request that is valid."""
    return [_stored(item) for item in items]


def _stored(item: Item) -> Item:
    kind = item.get("type", "message")
    given = item.get("id")
    name = given if given and isinstance(given, str) else f"{PREFIXES[kind]}_{uuid4().hex}"
    own = {"id": name, "type": kind}
    if kind == "message":
        return {"status": "completed", **item, **own, "content": _parts(item)}
    if kind == "reasoning":
        return {"summary": [], **item, **own}
    default = {"arguments": "{}"} if kind == "function_call" else {}
    return {"status": "completed", **default, **item, **own}


def _parts(item: Mapping[str, Any]) -> list[Item]:
    said = item.get("role") == "assistant"
    content = item.get("content") or ""
    parts = [{"text": content}] if isinstance(content, str) else content
    return [_part(part, said) for part in parts]


def _part(part: Mapping[str, Any], said: bool) -> Item:
    """A text; or a refusal, which the assistant alone has. said: it is the assistant's."""
    refused = part.get("type") == "refusal"
    text = part["refusal" if refused else "text"]
    if not said:
        return {"type": "input_text", "text": text}
    if refused:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "annotations": [], "text": text}
