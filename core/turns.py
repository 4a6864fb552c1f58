"""Lets threads have something that is single-threaded in turns, such as an engine."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from turnout.core.errors import EngineError

__all__ = ["Turns"]

T = TypeVar("T")


class Turns:
    """One caller at a time; the others wait. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None
        """The thread whose turn it is, set while it has the lock."""
        self._torn = False
        """This process was forked in the midst of a turn, which no thread of it will end."""
        note = weakref.WeakMethod(self._note_fork)
        os.register_at_fork(after_in_child=lambda: (noted := note()) and noted())

    def take(self, work: Callable[[], T]) -> T:
        """Does `work` and returns what it returns, as soon as no other thread is at its own.

        Raises EngineError where `work` takes a turn itself, and in a process that was forked during a turn.
        """
        if self._torn:
            raise EngineError(
                "this process was forked while a call used the engine, whose copy here is of no use; build "
                "one in this process, or fork while no call runs"
            )
        if self._holder == threading.get_ident() and self._lock.locked():
            raise EngineError(
                "this thread uses the engine already: a call was made in the midst of another, as by a "
                "signal handler or a plugin; make it when the other has returned"
            )
        with (
            self._lock
        ):  # itself, not a context manager around it, in which an interrupt could leave it locked
            self._holder = threading.get_ident()
            try:
                return work()
            finally:
                self._holder = None

    def _note_fork(self) -> None:
        self._torn = self._lock.locked()
