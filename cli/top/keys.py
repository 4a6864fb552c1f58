"""Keys as they are pressed, without Enter."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["pressed"]


@contextmanager
def pressed(hear: Callable[[str], None]) -> Iterator[None]:
    """Tells of what is typed, until the block is left; of nothing where there is no terminal to type in."""
    if not sys.stdin.isatty():
        yield
        return
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)

    def read() -> None:
        typed = b""
        with suppress(OSError):
            typed = os.read(keyboard, 1024)
        if not typed:  # the terminal is gone
            loop.remove_reader(keyboard)
        hear(typed.decode(errors="ignore"))

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, read)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
