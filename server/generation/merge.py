"""Several asynchronous streams as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

__all__ = ["merged"]

TURN = 16
"""Sources that begin in one turn of the event loop: a source may begin by sending a request to the engine."""
WAITING = 256
"""Items that may wait for a client that reads slowly; beyond that, the sources wait too."""

Item = TypeVar("Item")


async def merged(sources: Sequence[AsyncGenerator[Item, None]]) -> AsyncGenerator[Item, None]:
    """The items of all sources, in the order in which they come. The first error ends all sources."""
    queue: asyncio.Queue[Item | _End] = asyncio.Queue(WAITING)
    tasks: list[asyncio.Task[None]] = []
    try:
        for source in sources:
            tasks.append(asyncio.create_task(_pump(source, queue)))
            if len(tasks) % TURN == 0:
                await asyncio.sleep(0)  # other clients' turn
        running = len(tasks)
        while running:
            item = await queue.get()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                running -= 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(source: AsyncGenerator[Item, None], queue: asyncio.Queue[Item | _End]) -> None:
    try:
        async for item in source:
            await queue.put(item)
    except Exception as error:
        await queue.put(_End(error))
    else:
        await queue.put(_End(None))


class _End:
    """A source has ended, by itself or with an error."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
