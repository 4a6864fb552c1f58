"""A thread for work that would hold up the event loop, the smallest piece first."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import count
from typing import TypeVar

from turnout.core.errors import Overloaded
from turnout.core.limits import Limit
from turnout.core.process import done_in

__all__ = ["Turns"]

T = TypeVar("T")


class Turns:
    """One thread, so that the event loop competes with no more than one for Python's global lock."""

    def __init__(self, name: str, most: Limit, patience: Limit) -> None:
        """most: the sizes, together, that may wait before a piece. patience: how long a piece may wait."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._most, self._patience = most, patience
        self._numbers = count()
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._busy = False

    @asynccontextmanager
    async def turn(self, size: int, *, bounded: bool = True) -> AsyncGenerator[None, None]:
        """Waits until no one else works, and until all smaller pieces have been done.

        If `bounded`, raises Overloaded where too much is to be done before, or if that takes too long.
        """
        await self._wait(size, bounded)
        try:
            yield
        finally:
            self._next()

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in the thread; to be called within a turn."""
        return await done_in(self._thread, work)

    async def _wait(self, size: int, bounded: bool) -> None:
        if not self._busy:
            self._busy = True
            return
        if bounded and self._before(size) > self._most.most:
            raise Overloaded(
                f"more than {self._most.amount} wait already, {self._most.what}; try again later"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (size, next(self._numbers), turn))
        try:
            async with asyncio.timeout(self._patience.most if bounded else None):
                await self._come(turn)
        except TimeoutError:
            raise Overloaded(
                f"for {self._patience.amount} there was smaller work to do before; try again later"
            ) from None

    def _before(self, size: int) -> int:
        """The sizes, together, of what waits and would come before a piece of this size."""
        return sum(other for other, _, turn in self._queue if other <= size and not turn.done())

    async def _come(self, turn: asyncio.Future[None]) -> None:
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
