"""Several asynchronous streams as one, begun as there is room for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import TypeVar

from turnout.server.generation.portions import Portion

__all__ = ["merged"]

TURN = 16
"""Sources that begin in one turn of the event loop: a source may begin by sending a request to the engine."""
WAITING = 256
"""Items that may wait for a client that reads slowly; beyond that, the sources wait too."""

Item = TypeVar("Item")


async def merged(
    sources: Iterable[AsyncGenerator[Item, None]], portion: Portion
) -> AsyncGenerator[Item, None]:
    """The items of all sources, in the order in which they come. The first error ends all sources.

    Sources begin in order, each as `portion` has a place.
    """
    queue: asyncio.Queue[Item | _End] = asyncio.Queue(WAITING)
    left = iter(sources)
    tasks: set[asyncio.Task[None]] = set()
    running, source = 0, next(left, None)
    with portion:
        try:
            while True:
                while source is not None and portion.take():
                    task = asyncio.create_task(_pump(source, queue))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    running, source = running + 1, next(left, None)
                    if running % TURN == 0:
                        await asyncio.sleep(0)  # other clients' turn
                if not running:
                    return
                item = await queue.get()
                while not isinstance(item, _End):
                    yield item
                    item = await queue.get()
                if item.error is not None:
                    raise item.error
                portion.give_back()
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
