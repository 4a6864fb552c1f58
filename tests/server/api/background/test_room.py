"""Responses in the background wait before the engines, as far as others need room there."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

from turnout.core import limits
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.api.background.room import Room, Size


class Engine:
    """In place of a client: a request ends when the test says so."""

    def __init__(self) -> None:
        self.requests: list[RequestSpec] = []
        self._ends: dict[str, asyncio.Event] = {}

    @property
    def names(self) -> list[str]:
        return [request.id for request in self.requests]

    async def submit(self, request: RequestSpec) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        self._ends[request.id] = asyncio.Event()
        yield Delta(request_id=request.id, index=0, tokens=[1])
        await self._ends[request.id].wait()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await settled()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def request(name: str, origin: str = "", prompt: int = 10, tokens: int = 90, **fields: Any) -> RequestSpec:
    params = SamplingParams(max_tokens=tokens)
    return RequestSpec(id=name, prompt=[0] * prompt, params=params, seed=0, origin=origin, **fields)


async def begun(room: Room, requests: Sequence[RequestSpec]) -> list[asyncio.Task[None]]:
    async def whole(request: RequestSpec) -> None:
        async for _ in room.submit(request):
            pass

    tasks = [asyncio.create_task(whole(request)) for request in requests]
    await settled()
    return tasks


def room_for(engine: Engine, choices: int = 100, tokens: float = 1000) -> Room:
    return Room(engine, lambda: Size(choices, tokens))  # type: ignore[arg-type]


def test_no_more_are_in_the_engine_than_memory_is_for() -> None:
    async def main() -> None:
        engine = Engine()
        await begun(room_for(engine, tokens=250), [request(name) for name in "abcd"])
        assert engine.names == ["a", "b"]
        await engine.end("b")
        assert engine.names == ["a", "b", "c"]

    asyncio.run(main())


def test_nor_than_there_are_places_for() -> None:
    async def main() -> None:
        engine = Engine()
        await begun(room_for(engine, choices=1, tokens=math.inf), [request(name) for name in "ab"])
        assert engine.names == ["a"]

    asyncio.run(main())


def test_one_that_is_larger_than_the_room_is_served_alone() -> None:
    async def main() -> None:
        engine = Engine()
        await begun(room_for(engine, tokens=50), [request("a"), request("b", tokens=1)])
        assert engine.names == ["a"]
        await engine.end("a")
        assert engine.names == ["a", "b"]

    asyncio.run(main())


def test_one_that_may_have_more_tokens_than_is_usual_counts_as_a_usual_one() -> None:
    assert Size.of(request("a", tokens=10**6)) == Size(1, 10 + limits.BACKGROUND_TOKENS.whole)
    assert Size.of(request("a", tokens=5)) == Size(1, 15)


def test_clients_take_turns_and_each_is_served_in_order() -> None:
    async def main() -> None:
        engine = Engine()
        asked = [request(name, "first") for name in ("a", "b", "c", "d")] + [request("x", "second")]
        await begun(room_for(engine, tokens=100), asked)
        for name in ("a", "b", "x", "c"):
            await engine.end(name)
        assert engine.names == ["a", "b", "x", "c", "d"]

    asyncio.run(main())


def test_one_that_is_cancelled_leaves_its_place_or_its_turn() -> None:
    async def main() -> None:
        engine = Engine()
        room = room_for(engine, tokens=100)
        first, second, _, fourth = await begun(room, [request(name, name) for name in "abcd"])
        for task in (second, fourth, first):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await settled()
        assert engine.names == ["a", "c"]
        await engine.end("c")
        await begun(room, [request("e")])
        assert engine.names == ["a", "c", "e"]

    asyncio.run(main())


def test_deadlines_stay_where_they_were() -> None:
    async def main() -> None:
        engine = Engine()
        tasks = await begun(room_for(engine, tokens=100), [request("a"), request("b", deadline=60.0)])
        await asyncio.sleep(0.01)
        await engine.end("a")
        assert engine.requests[1].deadline is not None and engine.requests[1].deadline <= 60 - 0.01
        await engine.end("b")
        assert all(task.done() for task in tasks)

    asyncio.run(main())
