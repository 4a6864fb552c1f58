"""Texts are tokenized beside the event loop, few at once, and short ones wait for no long one."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from turnout.core import limits
from turnout.core.errors import Overloaded
from turnout.server.api.text_pool import LONG, THREADS, TextPool


def test_short_texts_wait_for_no_long_one() -> None:
    async def main() -> str:
        pool, release = TextPool(), threading.Event()
        long = [asyncio.create_task(pool.run(LONG, partial(release.wait, 20))) for _ in range(2 * THREADS)]
        await asyncio.sleep(0)
        name = await asyncio.wait_for(pool.run(LONG - 1, lambda: threading.current_thread().name), 10)
        release.set()
        await asyncio.gather(*long)
        return name

    assert asyncio.run(main()).startswith("short-texts")


@pytest.mark.parametrize("size", [1, LONG])
def test_a_text_for_which_no_thread_can_be_started_is_refused(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Under a container's limit of pids it was an internal error, with a traceback."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Overloaded, match="can't start new thread; try again later"):
        asyncio.run(TextPool().run(size, list))


def test_of_long_texts_the_shortest_is_next() -> None:
    """Each takes 200 times its size in memory, so there is one at a time."""

    async def main() -> list[int]:
        pool, release, done = TextPool(), threading.Event(), list[int]()
        first = asyncio.create_task(pool.run(LONG, partial(release.wait, 20)))
        await asyncio.sleep(0)
        sizes = [8 * LONG, 3 * LONG, 5 * LONG]
        others = [asyncio.create_task(pool.run(size, partial(done.append, size))) for size in sizes]
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(first, *others)
        return done

    assert asyncio.run(main()) == [3 * LONG, 5 * LONG, 8 * LONG]


def test_too_many_waiting_texts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TEXTS", limits.Limit(most=3, unit="texts", what="texts", answer="503"))

    async def main() -> None:
        pool, release = TextPool(), threading.Event()
        waiting = [asyncio.create_task(pool.run(0, partial(release.wait, 20))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="3 texts are waiting"):
            await pool.run(0, int)
        release.set()
        await asyncio.gather(*waiting)
        assert await pool.run(0, int) == 0

    asyncio.run(main())


def test_work_whose_client_has_left_is_not_begun() -> None:
    async def main() -> list[str]:
        pool, release, done = TextPool(), threading.Event(), list[str]()
        running = [asyncio.create_task(pool.run(0, partial(release.wait, 20))) for _ in range(THREADS)]
        waiting = asyncio.create_task(pool.run(0, partial(done.append, "begun")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        release.set()
        await asyncio.gather(*running)
        await pool.run(0, int)
        return done

    assert asyncio.run(main()) == []
