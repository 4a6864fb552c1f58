"""A thread for work that would hold up the event loop, the smallest piece first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of `work`. Cancelled while it waits, it is not begun; begun, it is finished."""
        await self._turn(size)
        done = asyncio.get_running_loop().run_in_executor(self._thread, work)
        done.add_done_callback(self._finished)
        return await asyncio.shield(done)

    async def _turn(self, size: int) -> None:
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

    def _finished(self, done: asyncio.Future[T]) -> None:
        done.exception()  # whoever waited for it may have left
        self._next()

    def _next(self) -> None:
        while self._queue:
            *_, turn = heapq.heappop(self._queue)
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
