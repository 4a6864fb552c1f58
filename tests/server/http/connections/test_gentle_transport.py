"""What a turn of the event loop writes is sent together, and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from turnout.server.http.connections.gentle_transport import WAITING_BYTES, GentleTransport


class Transport:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.told.append(bytes(data))

    def close(self) -> None:
        self.told.append("close")
        self.closing = True

    def abort(self) -> None:
        self.told.append("abort")
        self.closing = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.told.append("eof")

    def is_closing(self) -> bool:
        return self.closing


def told(*turns: Callable[[GentleTransport, Transport], None]) -> list[list[bytes | str]]:
    """What the transport was told by the end of each turn of the event loop."""
    inner = Transport()

    async def main() -> list[list[bytes | str]]:
        outer, seen = GentleTransport(cast(asyncio.Transport, inner), inner.close), []
        for turn in turns:
            turn(outer, inner)
            await asyncio.sleep(0)
            seen.append(list(inner.told))
        return seen

    return asyncio.run(main())


def write(*parts: bytes) -> Callable[[GentleTransport, Transport], None]:
    def turn(outer: GentleTransport, inner: Transport) -> None:
        before = list(inner.told)
        for part in parts:
            outer.write(part)
        assert inner.told == before

    return turn


def test_writes_of_a_turn_are_one() -> None:
    assert told(write(b"head", b"event", b"end"), write(b"next")) == [
        [b"headeventend"],
        [b"headeventend", b"next"],
    ]


def test_what_is_alone_is_written_at_once_and_after_what_waits() -> None:
    def alone(outer: GentleTransport, inner: Transport) -> None:
        outer.write_at_once(b"1")
        assert inner.told == [b"1"]

    def after(outer: GentleTransport, inner: Transport) -> None:
        outer.write(b"2")
        outer.write_at_once(b"3")
        assert inner.told == [b"1", b"23"]

    def closing(outer: GentleTransport, inner: Transport) -> None:
        inner.closing = True
        outer.write_at_once(b"4")

    assert told(alone, after, closing)[-1] == [b"1", b"23"]


def test_much_does_not_wait_for_the_end_of_the_turn() -> None:
    """So a response that is written without a pause learns that its client reads slowly."""
    part = b"x" * (WAITING_BYTES // 4)

    def turn(outer: GentleTransport, inner: Transport) -> None:
        for number in range(1, 11):
            outer.write(part)
            assert sum(map(len, inner.told)) >= (number - 4) * len(part)

    ((*parts,),) = told(turn)
    assert b"".join(cast(list[bytes], parts)) == part * 10


@pytest.mark.parametrize(
    ("end", "said"), [(GentleTransport.shut, "close"), (GentleTransport.write_eof, "eof")]
)
def test_the_end_comes_after_what_waits(end: Callable[[GentleTransport], None], said: str) -> None:
    def turn(outer: GentleTransport, inner: Transport) -> None:
        outer.write(b"last")
        end(outer)

    assert told(turn) == [[b"last", said]]


def test_an_abort_sends_nothing_more() -> None:
    def turn(outer: GentleTransport, inner: Transport) -> None:
        outer.write(b"last")
        outer.abort()

    assert told(turn) == [["abort"]]


def test_nothing_is_written_to_a_connection_that_ends_meanwhile() -> None:
    def turn(outer: GentleTransport, inner: Transport) -> None:
        outer.write(b"late")
        inner.closing = True

    assert told(turn) == [[]]
