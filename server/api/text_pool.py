"""Threads in which clients' texts are rendered and tokenized while the event loop serves other clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from turnout.core import limits
from turnout.core.errors import Overloaded

__all__ = ["TextPool"]

THREADS = 2
LONG = 2**16
"""Characters from which on a text is long. Long texts have threads of their own, so that short ones wait for
no long one."""

T = TypeVar("T")


class TextPool:
    """A few threads for short texts, and as many for long ones."""

    def __init__(self) -> None:
        self._short = ThreadPoolExecutor(THREADS, thread_name_prefix="short-texts")
        self._long = ThreadPoolExecutor(THREADS, thread_name_prefix="long-texts")
        self._waiting = 0

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of `work` on texts of `size` characters. Cancelled while it waits, it is not begun.

        Raises Overloaded if too many texts are waiting.
        """
        if self._waiting >= limits.TEXTS.whole:
            raise Overloaded(f"{self._waiting:,} texts are waiting to be tokenized already; try again later")
        self._waiting += 1
        try:
            threads = self._long if size >= LONG else self._short
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        finally:
            self._waiting -= 1
