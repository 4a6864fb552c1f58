"""A log of events is read from any one on, while they come and later, and gives its room to others."""

from __future__ import annotations

import asyncio

import pytest

from turnout.core import limits
from turnout.server.api.background import event_log
from turnout.server.api.background.event_log import EventLog, EventLogs


async def read(log: EventLog, first: int) -> bytes:
    return b"".join([piece async for piece in log.read(first)])


def test_readers_get_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "READ", 2)

    async def main() -> None:
        log = EventLog()
        log.add(b"0\n\n1\n\n")
        readers = [asyncio.create_task(read(log, first)) for first in (0, 1, 3, 9)]
        await asyncio.sleep(0)
        log.add(b"2\n\n")
        await asyncio.sleep(0)
        log.add(b"3\n\n4\n\n")
        log.end()
        everything = b"0\n\n1\n\n2\n\n3\n\n4\n\n"
        assert [await reader for reader in readers] == [everything, everything[3:], everything[9:], b""]
        assert await read(log, 0) == everything

    asyncio.run(main())


def test_logs_that_ended_first_go_first() -> None:
    async def main() -> None:
        logs = EventLogs()
        for name in "abc":
            logs.begin(name).add(b"x" * int(limits.EVENTS_KEPT.most / 2 - 1000) + b"\n\n")
        for name in "bac":
            logs.end(name)
        assert [logs.find(name) is not None for name in "abc"] == [True, False, True]
        logs.end("b")
        logs.forget("a")
        assert [logs.find(name) is not None for name in "abc"] == [False, False, True]

    asyncio.run(main())
