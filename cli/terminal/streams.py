"""Standard output and standard error."""

from __future__ import annotations

import sys
from io import TextIOWrapper

__all__ = ["escape_unknown_characters"]


def escape_unknown_characters() -> None:
    """Has a character that the terminal's encoding lacks written as ``\\U0001f600``; Python would raise."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
