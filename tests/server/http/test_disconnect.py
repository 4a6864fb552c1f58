"""Work ends with its client, and its client alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from turnout.server.http.disconnect import while_connected


class Client:
    """Says that it has left, once it has."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        await self.left.wait()
        return {"type": "http.disconnect"}


class Work:
    """Notes how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.end = ""

    async def run(self, until: Callable[[], Awaitable[object]]) -> str:
        self.begun.set()
        try:
            await until()
        except asyncio.CancelledError:
            self.end = "cancelled"
            raise
        self.end = "done"
        return "result"


async def never() -> None:
    await asyncio.get_running_loop().create_future()


async def at_once() -> None:
    pass


def test_work_that_waits_for_nothing_asks_nothing() -> None:
    async def main() -> None:
        client, work = Client(), Work()
        assert await while_connected(client.receive, work.run(at_once)) == "result"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert client.asked == 0

    asyncio.run(main())


def test_work_has_its_result_while_its_client_stays() -> None:
    async def main() -> None:
        client, work = Client(), Work()
        assert await while_connected(client.receive, work.run(lambda: asyncio.sleep(0.01))) == "result"
        assert client.asked == 1
        await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) == 1  # nobody watches any more

    asyncio.run(main())


def test_a_client_that_leaves_ends_the_work() -> None:
    async def main() -> None:
        client, work = Client(), Work()
        asyncio.get_running_loop().call_later(0.01, client.left.set)
        with pytest.raises(ClientDisconnect):
            await while_connected(client.receive, work.run(never))
        assert work.end == "cancelled"
        await asyncio.sleep(0)  # the task goes on as if it had never been cancelled
        task = asyncio.current_task()
        assert task is not None and not task.cancelling()

    asyncio.run(main())


def test_a_client_that_cannot_be_heard_of_has_left() -> None:
    async def main() -> None:
        async def broken() -> Message:
            raise RuntimeError

        work = Work()
        with pytest.raises(ClientDisconnect):
            await while_connected(broken, work.run(never))
        assert work.end == "cancelled"

    asyncio.run(main())


@pytest.mark.parametrize("leaves", [False, True])
def test_a_task_that_is_cancelled_stays_so(leaves: bool) -> None:
    """Also where its client leaves in the same moment."""

    async def main() -> None:
        client, work = Client(), Work()
        task = asyncio.create_task(while_connected(client.receive, work.run(never)))
        await work.begun.wait()
        await asyncio.sleep(0.01)
        if leaves:
            client.left.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.end == "cancelled"

    asyncio.run(main())


@pytest.mark.parametrize("inside", [True, False])
def test_a_time_limit_stays_one(inside: bool) -> None:
    async def main() -> None:
        client = Client()

        async def limited(work: Any) -> None:
            async with asyncio.timeout(0.01):
                await work

        work = Work().run(never)
        with pytest.raises(TimeoutError):
            if inside:
                await while_connected(client.receive, limited(work))
            else:
                await limited(while_connected(client.receive, work))

    asyncio.run(main())


def test_an_error_of_the_work_is_its_own() -> None:
    async def main() -> None:
        async def fails() -> None:
            await asyncio.sleep(0)
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await while_connected(Client().receive, fails())

    asyncio.run(main())
