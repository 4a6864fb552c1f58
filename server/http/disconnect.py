"""Cancels work for a client that has disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

__all__ = ["while_connected"]

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`; if the client disconnects first, cancel it and raise ClientDisconnect.

    Call it after the body has been read: from then on, `receive` reports nothing but the disconnect.
    """
    watch = _Watch(receive)
    try:
        return await work
    except asyncio.CancelledError:
        if watch.explains_cancellation():
            raise ClientDisconnect from None
        raise
    finally:
        watch.end()


class _Watch:
    """Cancels the task that makes it when the client disconnects.

    It begins once the task waits for something: much work for a client never does.
    """

    def __init__(self, receive: Receive) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancellations = task, task.cancelling()
        self._receive = receive
        self._watching: asyncio.Task[None] | None = None
        self._beginning = asyncio.get_running_loop().call_soon(self._begin)
        self._left = False

    def end(self) -> None:
        self._beginning.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def explains_cancellation(self) -> bool:
        """Whether the task was cancelled for this alone."""
        return self._left and self._task.uncancel() <= self._cancellations

    def _begin(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        with suppress(Exception):  # where nothing can be received, there is no client either
            while (await self._receive())["type"] != "http.disconnect":
                pass
        self._left = True
        self._task.cancel()
