"""Several streams as one, begun a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any, cast

import pytest

from turnout.server.generation.merge import TURN, merged
from turnout.server.generation.portions import Portion, Portions


async def numbers(first: int, begun: list[int], *, fail: bool = False) -> AsyncGenerator[int, None]:
    begun.append(first)
    yield first
    await asyncio.sleep(0)
    if fail:
        raise ValueError(first)
    yield first + 1


def places(most: int = 1000) -> Portions:
    return Portions(cast(Any, None), lambda: most)


async def read(sources: Iterable[AsyncGenerator[int, None]], shared: Portions) -> list[int]:
    return [item async for item in merged(sources, Portion(shared, 1))]


def test_all_items_come() -> None:
    found = asyncio.run(read([numbers(10 * k, []) for k in range(100)], places()))
    assert sorted(found) == sorted(10 * k + i for k in range(100) for i in range(2))


def test_thousands_of_sources_begin_in_many_turns() -> None:
    """Two thousand prompts were sent to the engine in one turn: a third of a second for all other clients."""

    async def main() -> int:
        begun: list[int] = []
        most = before = 0
        reading = asyncio.create_task(read((numbers(k, begun) for k in range(40 * TURN)), places()))
        while not reading.done():
            await asyncio.sleep(0)
            most, before = max(most, len(begun) - before), len(begun)
        return most

    assert asyncio.run(main()) <= 2 * TURN


def test_the_first_error_ends_all() -> None:
    shared = places()
    with pytest.raises(ValueError, match="3"):
        asyncio.run(read([numbers(k, [], fail=k == 3) for k in range(3 * TURN)], shared))
    assert not shared.requests


def test_requests_share_the_places_evenly_and_take_those_that_others_leave() -> None:
    """A hundred requests of 2,048 prompts had 204,800 tasks: a gigabyte, and eight seconds without a turn."""

    async def main() -> list[int]:
        shared, running, most = places(12), [0, 0, 0], [0, 0, 0]

        async def source(request: int) -> AsyncGenerator[int, None]:
            running[request] += 1
            most[request] = max(most[request], running[request])
            assert sum(running) <= 12 + 2  # each of the others has one at least
            await asyncio.sleep(0)
            running[request] -= 1
            yield request

        async def one(request: int, prompts: int) -> None:
            await read((source(request) for _ in range(prompts)), shared)

        await asyncio.gather(one(0, 30), one(1, 60), one(2, 90))
        assert not shared.taken
        return most

    assert asyncio.run(main()) == [12, 6, 12]
