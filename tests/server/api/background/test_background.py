"""A response in the background holds memory until it has ended, and gives it up for smaller requests."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from turnout.core import limits
from turnout.core.errors import Overloaded
from turnout.server.api.background.background import Background
from turnout.server.http.request_memory import RequestMemory


class Generating:
    """In place of a generation: grows to a size, and ends when it is let go on."""

    first_token_at = None

    def __init__(self, size: int) -> None:
        self.size, self.hold = size, lambda size: None
        self.may_end = asyncio.Event()

    async def choices(self) -> list[Any]:
        self.hold(self.size)
        await self.may_end.wait()
        return []


class Rendering:
    """In place of a renderer: a response is a word."""

    id = "resp_1"

    def whole(self, choices: list[Any], generation: object) -> Any:
        return "completed"

    def broken_off(self, status: str, generation: object, reason: str = "") -> Any:
        return f"{status}: {reason}"


async def begun(memory: RequestMemory, generation: Generating) -> tuple[Background, list[Any]]:
    background, saved = Background(), []

    async def save(body: Any) -> None:
        saved.append(body)

    with memory.held() as held:
        held.hold(40)
        background.start(generation, Rendering(), save, held.passed_on())  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    return background, saved


def test_it_holds_its_request_and_what_is_gathered() -> None:
    async def main() -> None:
        memory, generation = RequestMemory(100), Generating(30)
        _, saved = await begun(memory, generation)
        with memory.held() as other:
            other.hold(30)
        with memory.held() as other, pytest.raises(Overloaded):
            other.hold(80)
        generation.may_end.set()
        await asyncio.sleep(0.01)
        assert saved == ["completed"]
        with memory.held() as first, memory.held() as second:
            first.hold(50)
            second.hold(50)

    asyncio.run(main())


def test_it_fails_where_smaller_requests_need_its_memory() -> None:
    async def main() -> None:
        memory = RequestMemory(100)
        _, saved = await begun(memory, Generating(30))
        with memory.held() as other:
            other.hold(50)
            await asyncio.sleep(0.01)
        (failed,) = saved
        assert failed.startswith("failed: ") and "--request-memory" in failed

    asyncio.run(main())


def test_responses_that_are_being_stored_count_for_how_many_there_may_be() -> None:
    """Any number passed that came at once."""
    background = Background()
    with ExitStack() as begun:
        for _ in range(limits.BACKGROUND.whole):
            begun.enter_context(background.place())
        with pytest.raises(Overloaded, match="256 responses are in the background"), background.place():
            pass
    with background.place():
        pass
