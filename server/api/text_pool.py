"""Threads in which clients' texts are rendered and tokenized while the event loop serves other clients."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from turnout.core import limits
from turnout.core.errors import Overloaded
from turnout.core.process import done_in
from turnout.models.checkpoints.malloc_trim import MallocTrim
from turnout.server.http.bodies.turns import Turns

__all__ = ["TextPool"]

THREADS = 2
LONG = 2**16
"""Characters from which on a text is long. Long texts have a thread of their own, so that short ones wait for
no long one."""
AT_ONCE = 512
"""Characters that are tokenized at once: handing them to a thread would take longer."""
BYTES_PER_CHARACTER = 250
"""What tokenizing takes, about. glibc would keep it for the thread's next text."""

T = TypeVar("T")


class TextPool:
    """A few threads for short texts, and one for long ones, the shortest first: each takes much memory."""

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(THREADS, thread_name_prefix="short-texts")
        self._long = Turns("long-texts", limits.TEXTS_BEFORE, limits.TURN_SECONDS)
        self._trim = MallocTrim()
        self._waiting = 0

    async def run(self, size: int, work: Callable[[], T], *, bounded: bool = True) -> T:
        """The result of `work` on texts of `size` characters. Cancelled while it waits, it is not begun.

        Raises Overloaded if too many texts are waiting; not if not `bounded`.
        """
        if bounded and self._waiting >= limits.TEXTS.whole:
            raise Overloaded(f"{self._waiting:,} texts are waiting to be tokenized already; try again later")
        self._waiting += 1
        try:
            if size < LONG:
                return await done_in(self._short, work)
            async with self._long.turn(size, bounded=bounded):
                return await self._long.run(lambda: self._trimmed(size, work))
        finally:
            self._waiting -= 1

    async def tokenize(self, size: int, work: Callable[[], T]) -> T:
        """As `run`, for work that waits for nothing, not even for a template's process."""
        return work() if size <= AT_ONCE else await self.run(size, work)

    def _trimmed(self, size: int, work: Callable[[], T]) -> T:
        try:
            return work()
        finally:
            self._trim.add(BYTES_PER_CHARACTER * size)
