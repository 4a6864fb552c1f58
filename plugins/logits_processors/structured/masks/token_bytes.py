"""The bytes by which texts and markers are compared: those of tokens, and what stands for special ones."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["TokenBytes", "special"]

TokenBytes = Callable[[int], bytes]
"""The bytes of a token; those of special ones are no text, see `special`."""


def special(token: int) -> bytes:
    """What stands for a special token: no text has this byte."""
    return b"\xff%d;" % token
