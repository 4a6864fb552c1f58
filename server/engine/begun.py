"""Notes with which requests an engine begins, in a file that outlives the engine's process.

What an engine sends last may be lost when its process dies, and a file's lines are not. A line tells of a
request before anything is done for it that could end the process, so that only those begun are suspected.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable

from turnout.plugins.launchers.begun_file import HEADER

__all__ = ["BegunLog"]

logger = logging.getLogger(__name__)

MOST_BYTES = 2**18
"""The file's size from which it is written anew, without requests that have ended."""


class BegunLog:
    """Writes the lines of a `BegunFile`. For use by the engine's thread alone."""

    def __init__(self, fd: int | None, left: Callable[[], Iterable[str]]) -> None:
        """`fd`: of the file; None: it is not wanted. `left`: those begun and not ended."""
        self._fd = fd
        self._left = left
        self._size = 0
        self._write(HEADER)

    def begin(self, id: str) -> None:
        """Note that the engine begins with a request."""
        self._write(b"+%b\n" % id.encode())

    def withdraw(self, id: str) -> None:
        """Note that a request waits, and nothing is being done for it."""
        self._write(b"-%b\n" % id.encode())

    def _write(self, line: bytes) -> None:
        if self._fd is None:
            return
        try:
            if self._size > MOST_BYTES:
                line = b"".join([HEADER, *(b"+%b\n" % id.encode() for id in self._left()), line])
                self._begin_anew()
            self._size += os.write(self._fd, line)
        except OSError as error:
            logger.warning("requests that are begun cannot be noted: %s", error.strerror)
            self._begin_anew()  # the file says nothing, rather than something wrong
            self._fd = None

    def _begin_anew(self) -> None:
        assert self._fd is not None
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._size = 0
