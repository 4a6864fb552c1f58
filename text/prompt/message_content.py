"""The content of a message in OpenAI's API: a text, or parts that become one."""

from __future__ import annotations

__all__ = ["content_text"]


def content_text(content: object) -> str | None:
    """The content as a text: parts of the types `text` and `refusal` are joined by line breaks.

    Raises ValueError for anything else. None stays None.
    """
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError("a string or a list of parts is expected")
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind not in ("text", "refusal"):
        raise ValueError(f"only parts of type 'text' are supported, not {kind!r}")
    text = part.get(kind)
    if not isinstance(text, str):
        raise ValueError(f"a part of type {kind!r} is expected to have a {kind}, which is a string")
    return text
