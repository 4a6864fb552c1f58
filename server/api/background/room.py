"""Lets responses in the background into the engines as far as other requests find room beside them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from turnout.core import limits
from turnout.core.clock import monotonic
from turnout.core.engine.client import EngineClient
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.server.generation.portions import waited

__all__ = ["Room", "Size"]


@dataclass(frozen=True)
class Size:
    """What requests take of engines."""

    choices: int = 0
    tokens: float = 0
    """Positions of KV memory."""

    @classmethod
    def of(cls, request: RequestSpec) -> Size:
        """What a request is expected to take."""
        params = request.params
        output = min(params.max_tokens or limits.BACKGROUND_TOKENS.whole, limits.BACKGROUND_TOKENS.whole)
        return cls(params.n, params.n * (len(request.prompt) + output))

    def __add__(self, other: Size) -> Size:
        return Size(self.choices + other.choices, self.tokens + other.tokens)

    def fits(self, most: Size) -> bool:
        return self.choices <= most.choices and self.tokens <= most.tokens


@dataclass(eq=False)
class _Entrant:
    size: Size
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Room:
    """What responses in the background have of an arm's engines at once: one at least.

    The others wait here, those of an origin in order, and origins in turn. In an engine's queue, another
    client's request would wait behind all of them.
    """

    def __init__(self, client: EngineClient, most: Callable[[], Size]) -> None:
        self._client, self._most = client, most
        self._inside: set[_Entrant] = set()
        self._waiting: dict[str, deque[_Entrant]] = {}
        """By origin. The first one's turn is next."""

    async def submit(self, request: RequestSpec) -> AsyncGenerator[Delta, None]:
        """As `EngineClient.submit`, when there is room."""
        arrival = monotonic()
        entrant = _Entrant(Size.of(request))
        try:
            await self._enter(entrant, request.origin)
            late = waited(request, monotonic() - arrival)
            async with aclosing(self._client.submit(late)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            self._inside.discard(entrant)
            self._admit()

    async def _enter(self, entrant: _Entrant, origin: str) -> None:
        self._waiting.setdefault(origin, deque()).append(entrant)
        self._admit()
        try:
            await entrant.turn
        except asyncio.CancelledError:
            if entrant not in self._inside:
                self._waiting[origin].remove(entrant)
                if not self._waiting[origin]:
                    del self._waiting[origin]
            raise

    def _admit(self) -> None:
        """Lets in those that fit, one of each origin in turn."""
        while self._waiting:
            origin, queue = next(iter(self._waiting.items()))
            if self._inside and not (self._taken + queue[0].size).fits(self._most()):
                return
            entrant = queue.popleft()
            self._inside.add(entrant)
            if not entrant.turn.done():
                entrant.turn.set_result(None)
            del self._waiting[origin]
            if queue:
                self._waiting[origin] = queue

    @property
    def _taken(self) -> Size:
        return sum((entrant.size for entrant in self._inside), Size())
