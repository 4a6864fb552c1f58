"""Escapes of surrogates in JSON: a half without its other half is no character, and clients refuse it."""

from __future__ import annotations

import re

__all__ = ["WholePairs"]

ESCAPES = re.compile(
    r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""A backslash, or a pair of surrogates; or half of a pair."""
BEGUN = re.compile(
    r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)\Z"
)
"""An escape, or a pair, of which there is but the beginning."""
REPLACEMENT = r"\ufffd"


class WholePairs:
    """Turns each half of a surrogate pair into U+FFFD, in JSON that comes in pieces."""

    def __init__(self) -> None:
        self._left = ""

    def feed(self, piece: str) -> str:
        """Returns the JSON that the piece completes, without the beginning of an escape at its end."""
        if not self._left and "\\" not in piece:
            return piece
        text, self._left = self._left + piece, ""
        if begun := BEGUN.search(text):
            text, self._left = text[: begun.start(1)], begun[1]
        return ESCAPES.sub(lambda found: found[1] or REPLACEMENT, text)
