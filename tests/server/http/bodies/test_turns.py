"""One piece of work after the other, the smallest first."""

from __future__ import annotations

import asyncio
import threading

import pytest

from turnout.server.http.bodies.turns import Turns


def test_the_smallest_of_those_that_wait_is_next() -> None:
    done: list[int] = []

    async def work(turns: Turns, size: int) -> None:
        async with turns.turn(size):
            await asyncio.sleep(0)
            done.append(size)

    async def main() -> None:
        turns = Turns("test")
        await asyncio.gather(*(work(turns, size) for size in (5, 4, 9, 1, 7)))

    asyncio.run(main())
    assert done == [5, 1, 4, 7, 9]


def test_a_turn_that_is_cancelled_goes_to_the_next() -> None:
    async def main() -> list[str]:
        turns, done = Turns("test"), []

        async def work(name: str) -> None:
            async with turns.turn(1):
                await asyncio.sleep(0.01)
                done.append(name)

        first, second, third = (asyncio.create_task(work(name)) for name in "abc")
        await asyncio.sleep(0)
        second.cancel()
        first.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        await work("d")
        return done

    assert asyncio.run(main()) == ["c", "d"]


def test_work_is_done_beside_the_loop_and_its_error_is_raised() -> None:
    async def main() -> None:
        turns = Turns("bodies")
        async with turns.turn(1):
            assert (await turns.run(lambda: threading.current_thread().name)).startswith("bodies")
        with pytest.raises(ZeroDivisionError):
            async with turns.turn(1):
                await turns.run(lambda: 1 // 0)
        async with turns.turn(1):
            pass

    asyncio.run(main())
