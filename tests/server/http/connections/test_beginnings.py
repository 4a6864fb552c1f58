"""Requests that come at once begin a few at a time; `/health` waits for none of them."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from turnout.server.http.access.auth import HEALTH
from turnout.server.http.connections.beginnings import BeginningsMiddleware

AT_ONCE = 4


class Requests:
    """An application that notes which requests have begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.paced = BeginningsMiddleware(self, HEALTH, AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.append(scope["path"])

    def come(self, *paths: str) -> list[asyncio.Task[None]]:
        return [asyncio.ensure_future(self._answered(path)) for path in paths]

    async def _answered(self, path: str) -> None:
        scope = {"type": "http", "path": path}
        await self.paced(scope, None, None)  # type: ignore[arg-type]  # unused here


def test_a_turn_of_the_loop_begins_a_few() -> None:
    async def main() -> list[int]:
        requests = Requests()
        tasks = requests.come(*["/version"] * 100)
        in_turns = []
        while not all(task.done() for task in tasks):
            before = len(requests.begun)
            await asyncio.sleep(0)
            in_turns.append(len(requests.begun) - before)
        return in_turns

    in_turns = asyncio.run(main())
    assert sum(in_turns) == 100
    assert max(in_turns) <= 2 * AT_ONCE  # those of a renewal, and those that it woke


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_health_is_answered_before_a_hundred_that_came_first(path: str) -> None:
    async def main() -> int:
        requests = Requests()
        *_, last = requests.come(*["/version"] * 100, path)
        await last
        return len(requests.begun)

    assert asyncio.run(main()) <= 2 * AT_ONCE + 1


def test_all_begin_in_the_order_in_which_they_came() -> None:
    async def main() -> list[str]:
        requests = Requests()
        await asyncio.gather(*requests.come(*map(str, range(50))))
        return requests.begun

    assert asyncio.run(main()) == [str(number) for number in range(50)]


def test_one_that_was_given_up_takes_no_place() -> None:
    async def main() -> list[str]:
        requests = Requests()
        tasks = requests.come(*map(str, range(50)))
        await asyncio.sleep(0)
        for task in tasks[AT_ONCE:49]:
            task.cancel()
        await tasks[-1]
        return requests.begun

    assert asyncio.run(main()) == ["0", "1", "2", "3", "49"]
