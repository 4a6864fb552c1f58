"""Reads prompts of one line or several from a terminal."""

from __future__ import annotations

import contextlib

__all__ = ["MULTILINE_HELP", "read_prompt"]

FENCE = '"""'
MULTILINE_HELP = f'{FENCE} begins and ends a prompt of several lines; so does "\\" at the end of a line.'


def read_prompt(mark: str = ">>> ", more: str = "... ") -> str:
    """Reads a prompt. Raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # gives input() a history and arrow keys
    line = input(mark)
    if line.lstrip().startswith(FENCE):
        return _fenced(line.lstrip().removeprefix(FENCE), more)
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1].removesuffix("\\")
        lines.append(input(more))
    return "\n".join(lines)


def _fenced(first: str, more: str) -> str:
    lines = [first]
    while not lines[-1].rstrip().endswith(FENCE):
        lines.append(input(more))
    lines[-1] = lines[-1].rstrip().removesuffix(FENCE)
    return "\n".join(lines).strip("\n")
