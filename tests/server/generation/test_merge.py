"""Several streams as one, begun a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from turnout.server.generation.merge import TURN, merged


async def numbers(first: int, begun: list[int], *, fail: bool = False) -> AsyncGenerator[int, None]:
    begun.append(first)
    yield first
    await asyncio.sleep(0)
    if fail:
        raise ValueError(first)
    yield first + 1


def test_all_items_come() -> None:
    async def main() -> list[int]:
        return [item async for item in merged([numbers(10 * k, []) for k in range(100)])]

    assert sorted(asyncio.run(main())) == sorted(10 * k + i for k in range(100) for i in range(2))


def test_thousands_of_sources_begin_in_many_turns() -> None:
    """Two thousand prompts were sent to the engine in one turn: a third of a second for all other clients."""

    async def main() -> int:
        begun: list[int] = []
        most = before = 0

        async def read() -> None:
            async for _ in merged([numbers(k, begun) for k in range(40 * TURN)]):
                pass

        reading = asyncio.create_task(read())
        while not reading.done():
            await asyncio.sleep(0)
            most, before = max(most, len(begun) - before), len(begun)
        return most

    assert asyncio.run(main()) <= 2 * TURN


def test_the_first_error_ends_all() -> None:
    async def main() -> None:
        async for _ in merged([numbers(k, [], fail=k == 3) for k in range(3 * TURN)]):
            pass

    with pytest.raises(ValueError, match="3"):
        asyncio.run(main())
