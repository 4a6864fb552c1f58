"""A budget of memory for all requests in flight: their bodies, their prompts, what is generated for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.core.errors import Overloaded

__all__ = ["HeldMemory", "RequestMemory", "RequestMemoryMiddleware", "held_memory"]

_KEY = "turnout.request_memory"


class RequestMemory:
    """Bounds the sum of what requests hold.

    When the budget is used up, the request that holds most is refused, of those whose bodies or answers still
    grow. So a small one comes through however many large ones are on their way.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._growing: set[HeldMemory] = set()

    @contextmanager
    def held(self) -> Iterator[HeldMemory]:
        """What one request holds, for as long as the block lasts."""
        held = HeldMemory(self)
        try:
            yield held
        finally:
            held.hold(0)

    @contextmanager
    def held_for(self, scope: Scope) -> Iterator[HeldMemory]:
        """What the request of a scope holds, for as long as the block lasts."""
        with self.held() as held:
            scope[_KEY] = held
            yield held

    def take(self, held: HeldMemory, size: int) -> None:
        """Let a request hold `size` bytes more, or less. Raises Overloaded."""
        self._used += size
        while size > 0 and self._used > self._most and self._used > held.size + size:
            largest = max(self._growing | {held}, key=lambda other: other.size + size * (other is held))
            if largest is held:
                self._used -= size
                raise _overloaded()
            largest.give_up()

    @contextmanager
    def growing(self, held: HeldMemory) -> Iterator[None]:
        """While what a request holds grows: it may be refused for another."""
        self._growing.add(held)
        try:
            yield
        finally:
            self._growing.discard(held)


class HeldMemory:
    """The memory that one request holds, in bytes."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory
        self._task: asyncio.Task[object] | None = None
        self.size = 0

    def hold(self, size: int) -> None:
        """Hold `size` bytes from now on. Raises Overloaded."""
        self._memory.take(self, size - self.size)
        self.size = size

    def add(self, size: int) -> None:
        """Hold so many bytes more. Raises Overloaded."""
        self.hold(self.size + size)

    @contextmanager
    def growing(self) -> Iterator[None]:
        """While this task lets it grow. Raises Overloaded when another request takes the memory."""
        self._task = asyncio.current_task()
        try:
            with self._memory.growing(self):
                yield
        except asyncio.CancelledError:
            if self._task is not None:
                raise
            asyncio.current_task().uncancel()  # type: ignore[union-attr]  # this runs in a task
            raise _overloaded() from None

    @contextmanager
    def gathering(self) -> Iterator[Callable[[int], None]]:
        """As `growing`, while an answer is gathered; yields what is to be told the answer's bytes by now."""
        before = self.size
        with self.growing():
            yield lambda size: self.hold(before + size)

    @contextmanager
    def passed_on(self) -> Iterator[HeldMemory]:
        """What this one holds, held for as long as the block lasts: the request itself may end before."""
        other = HeldMemory(self._memory)
        other.size, self.size = self.size, 0
        try:
            yield other
        finally:
            other.hold(0)

    def give_up(self) -> None:
        """Give the memory to another request."""
        task, self._task = self._task, None
        self.hold(0)
        if task is not None:
            task.cancel()


class RequestMemoryMiddleware:
    """Counts the memory of a request until its response has ended."""

    def __init__(self, app: ASGIApp, memory: RequestMemory) -> None:
        self._app, self._memory = app, memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._memory.held_for(scope):
            await self._app(scope, receive, send)


def held_memory(request: Request) -> HeldMemory:
    """What a request holds."""
    held: HeldMemory = request.scope[_KEY]
    return held


def _overloaded() -> Overloaded:
    return Overloaded("all requests in flight take the memory set by --request-memory; try again later")
