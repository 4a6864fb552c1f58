"""One piece of work after the other, the smallest first."""

from __future__ import annotations

import asyncio
import threading

import pytest

from turnout.core.errors import Overloaded
from turnout.core.limits import Limit
from turnout.server.http.bodies.turns import Turns


def some_turns(most: float = 100, seconds: float = 60) -> Turns:
    return Turns(
        "test",
        Limit(most=most, unit="bytes", what="bodies that wait", answer="503"),
        Limit(most=seconds, unit="seconds", what="wait of a body", answer="503"),
    )


def test_the_smallest_of_those_that_wait_is_next() -> None:
    done: list[int] = []

    async def work(turns: Turns, size: int) -> None:
        async with turns.turn(size):
            await asyncio.sleep(0)
            done.append(size)

    async def main() -> None:
        turns = some_turns()
        await asyncio.gather(*(work(turns, size) for size in (5, 4, 9, 1, 7)))

    asyncio.run(main())
    assert done == [5, 1, 4, 7, 9]


def test_a_turn_that_is_cancelled_goes_to_the_next() -> None:
    async def main() -> list[str]:
        turns, done = some_turns(), []

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
        turns = some_turns()
        async with turns.turn(1):
            assert (await turns.run(lambda: threading.current_thread().name)).startswith("test")
        with pytest.raises(ZeroDivisionError):
            async with turns.turn(1):
                await turns.run(lambda: 1 // 0)
        async with turns.turn(1):
            pass

    asyncio.run(main())


def test_what_would_wait_for_too_much_is_refused_at_once_and_what_is_smaller_is_not() -> None:
    async def main() -> list[int]:
        turns, done = some_turns(most=10), list[int]()

        async def work(size: int, **options: bool) -> None:
            async with turns.turn(size, **options):
                done.append(size)

        async with turns.turn(50):
            waiting = [asyncio.create_task(work(size)) for size in (6, 6)]
            await asyncio.sleep(0)
            with pytest.raises(Overloaded, match="more than 10 bytes wait already"):
                await work(6)
            waiting += [asyncio.create_task(work(5)), asyncio.create_task(work(7, bounded=False))]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        await work(6)
        return done

    assert asyncio.run(main()) == [5, 6, 6, 7, 6]


def test_nothing_waits_for_ever_for_smaller_work() -> None:
    async def main() -> None:
        turns = some_turns(seconds=0.01)
        async with turns.turn(1):
            with pytest.raises(Overloaded, match="there was smaller work"):
                async with turns.turn(2):
                    pass
        async with asyncio.timeout(10), turns.turn(2):
            pass

    asyncio.run(main())
