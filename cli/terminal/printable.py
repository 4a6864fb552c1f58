"""Text of strangers, made harmless for a terminal."""

from __future__ import annotations

__all__ = ["printable"]

DELETE = 0x7F
_PICTURES = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    DELETE: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""For each control character its picture, such as ␛. Line breaks and tabs stay."""


def printable(text: str) -> str:
    """Replaces the characters that a terminal obeys: it could write to the clipboard, or hide text."""
    return text.translate(_PICTURES)
