"""Has large bodies come a few pieces at a time, so that other requests come between."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Pace"]

TURN_BYTES = 256 * 2**10
"""Four pieces as connections have them. Reading and counting them takes 2 ms."""


class Pace:
    """Lets so many bytes through in a turn of the event loop, first come, first served.

    A hundred bodies at once, each with a piece in every turn, would make turns of 40 ms, and a request that
    came between takes several turns. While a body waits here, its connection is not read.
    """

    def __init__(self, most: int = TURN_BYTES) -> None:
        """most: bytes in a turn; the last piece may exceed it."""
        self._most = self._left = most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._renews = False

    async def take(self, size: int) -> None:
        """Return once a piece of `size` bytes may be looked at."""
        if self._left > 0 and not self._waiting:
            self._pass(size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        await turn

    def _pass(self, size: int) -> None:
        self._left -= size
        if not self._renews:
            self._renews = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        """The next turn has begun."""
        self._renews, self._left = False, self._most
        while self._waiting and self._left > 0:
            size, turn = self._waiting.popleft()
            if not turn.done():  # its client may have left
                turn.set_result(None)
                self._pass(size)
