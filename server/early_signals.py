"""Ctrl-C, SIGTERM and SIGHUP while a server starts, until its event loop handles them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from turnout.core.process import stop_signals

__all__ = ["EarlySignals", "early_signals"]


class EarlySignals:
    """Handles the signals by interrupting what the process does; remembers that one came."""

    def __init__(self) -> None:
        self.came = False

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.came and number == signal.SIGHUP:  # as in `Signals`
            return
        self.came = True
        raise KeyboardInterrupt


@contextmanager
def early_signals() -> Iterator[EarlySignals]:
    """Each signal ends the block, and what it raises then goes no further.

    Most of a start is imports, and an interrupt in the middle of one may come out of a library as an error
    of its own (of pydantic, a SchemaError), or not at all: so the block asks `EarlySignals.came` at its end.
    Where it cannot be raised, as in a finalizer, Python would print it.
    """
    early, unraisable = EarlySignals(), sys.unraisablehook
    sys.unraisablehook = lambda lost: None if lost.exc_type is KeyboardInterrupt else unraisable(lost)
    previous = {number: signal.signal(number, early.interrupt) for number in stop_signals()}
    try:
        yield early
    except KeyboardInterrupt:  # by `interrupt`, or by Ctrl-C once the event loop has ended
        pass
    except BaseException:
        if not early.came:
            raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        sys.unraisablehook = unraisable
