"""Reads prompts of one line or several from a terminal."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

__all__ = ["MULTILINE_HELP", "Prompt", "read_prompt"]

FENCE = '"""'
MULTILINE_HELP = (
    f'{FENCE} begins and ends a prompt of several lines, or one that begins with "/"; '
    'after "\\" at its end, a line goes on in the next.'
)


class Prompt(NamedTuple):
    """What was typed."""

    text: str
    plain: bool
    """A line without a fence or a continuation."""

    @property
    def command(self) -> str:
        """The command, such as ``/reset``; empty: it is none, such as a path or a comment."""
        line = self.text.strip()
        first = line.partition(" ")[0]
        return line if self.plain and first.startswith("/") and "/" not in first[1:] else ""


def read_prompt(mark: str = ">>> ", more: str = "... ") -> Prompt:
    """Reads a prompt. Raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # gives input() a history and arrow keys
    line = input(mark)
    if line.lstrip().startswith(FENCE):
        return Prompt(_fenced(line.lstrip().removeprefix(FENCE), more), plain=False)
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1].removesuffix("\\")
        lines.append(input(more))
    return Prompt("\n".join(lines), plain=len(lines) == 1)


def _fenced(first: str, more: str) -> str:
    lines = [first]
    while not lines[-1].rstrip().endswith(FENCE):
        lines.append(input(more))
    lines[-1] = lines[-1].rstrip().removesuffix(FENCE)
    return "\n".join(lines).strip("\n")
