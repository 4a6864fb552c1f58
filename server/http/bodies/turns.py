"""A thread for work that would hold up the event loop, the smallest piece first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeVar

__all__ = ["Turns"]

T = TypeVar("T")


class Turns:
    """One thread, so that the event loop competes with no more than one for Python's global lock."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._numbers = count()
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._busy = False

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncGenerator[None, None]:
        """Waits until no one else works, and until all smaller pieces have been done."""
        await self._wait(size)
        try:
            yield
        finally:
            self._next()

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in the thread; to be called within a turn."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _wait(self, size: int) -> None:
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (size, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._next()
            raise

    def _next(self) -> None:
        while self._queue:
            *_, turn = heapq.heappop(self._queue)
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
