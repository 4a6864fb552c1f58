"""Pieces of bodies come a few in a turn of the event loop."""

from __future__ import annotations

import asyncio

from turnout.server.http.bodies.pace import Pace


async def _turns(pace: Pace, bodies: int, pieces: int, size: int) -> list[int]:
    """How many pieces were let through in each turn of the event loop."""
    passed = 0

    async def read() -> None:
        nonlocal passed
        for _ in range(pieces):
            await pace.take(size)
            passed += 1

    reading = asyncio.gather(*(read() for _ in range(bodies)))
    turns: list[int] = []
    while not reading.done():
        before = passed
        await asyncio.sleep(0)
        turns.append(passed - before)
    return turns


def test_a_turn_has_no_more_than_it_may() -> None:
    turns = asyncio.run(_turns(Pace(300), bodies=50, pieces=4, size=100))
    assert sum(turns) == 200
    assert max(turns) <= 6  # those of a renewal, and of the bodies that it woke


def test_a_body_alone_does_not_wait() -> None:
    async def main() -> None:
        await asyncio.wait_for(Pace(100).take(1000), 0.01)

    asyncio.run(main())


def test_all_come_in_order() -> None:
    async def main() -> list[int]:
        pace, order = Pace(1), list[int]()

        async def read(number: int) -> None:
            await pace.take(5)
            order.append(number)

        await asyncio.gather(*map(read, range(20)))
        return order

    assert asyncio.run(main()) == list(range(20))


def test_one_whose_client_left_takes_no_turn() -> None:
    async def main() -> None:
        pace = Pace(1)
        await pace.take(1)
        left = [asyncio.create_task(pace.take(1)) for _ in range(1000)]
        await asyncio.sleep(0)
        for task in left:
            task.cancel()
        turns = 0
        last = asyncio.create_task(pace.take(1))
        while not last.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns < 10

    asyncio.run(main())
