"""The budget of all requests: who is refused when it is used up."""

from __future__ import annotations

import asyncio

import pytest

from turnout.core.errors import Overloaded
from turnout.server.http.request_memory import RequestMemory


def test_what_ends_gives_its_memory_back() -> None:
    memory = RequestMemory(100)
    with memory.held() as first:
        first.hold(90)
        with memory.held() as second, pytest.raises(Overloaded, match="--request-memory"):
            second.hold(20)
    with memory.held() as third:
        third.hold(100)


def test_a_body_that_is_alone_is_taken() -> None:
    memory = RequestMemory(100)
    with memory.held() as only:
        only.hold(500)


def test_the_largest_that_is_still_sent_is_refused_for_a_smaller_one() -> None:
    memory, refused = RequestMemory(100), []

    async def send(name: str, parts: list[int]) -> None:
        with memory.held() as held:
            try:
                with held.growing():
                    for size in parts:
                        held.hold(size)
                        await asyncio.sleep(0.01)
            except Overloaded:
                refused.append(name)
            await asyncio.sleep(0.05)  # it lives on, and can still wait

    async def main() -> None:
        await asyncio.gather(
            send("large", [60, 60, 60]), send("middle", [30, 30, 30]), send("small", [1, 5, 20])
        )

    asyncio.run(main())
    assert refused == ["large"]


def test_what_has_come_is_not_given_up() -> None:
    async def main() -> None:
        memory = RequestMemory(100)
        with memory.held() as served, memory.held() as new:
            with served.growing():
                served.hold(90)
            with pytest.raises(Overloaded), new.growing():
                new.hold(20)
            assert served.size == 90

    asyncio.run(main())


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def main() -> None:
        memory = RequestMemory(100)

        async def send() -> None:
            with memory.held() as held, held.growing():
                await asyncio.sleep(10)

        task = asyncio.create_task(send())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_what_is_passed_on_is_held_after_the_request_has_ended() -> None:
    async def main() -> None:
        memory = RequestMemory(100)
        with memory.held() as held:
            held.hold(60)
            going_on = held.passed_on()
            background = going_on.__enter__()
        with memory.held() as other, pytest.raises(Overloaded):
            other.hold(50)
        with background.gathering() as hold, pytest.raises(Overloaded), memory.held() as other:
            other.hold(10)
            hold(50)
        going_on.__exit__(None, None, None)
        with memory.held() as first, memory.held() as second:
            first.hold(50)
            second.hold(50)

    asyncio.run(main())
