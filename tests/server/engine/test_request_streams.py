"""Which requests are given to the engine that takes over, and which is found to kill engines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from turnout.core.errors import EngineError
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.engine.request_stream import RequestStream
from turnout.server.engine.request_streams import RequestStreams

NAMES = ("a", "b", "c", "d")


class Server:
    """The streams, and an engine that dies as soon as it has served a killer."""

    def __init__(self, names: Iterable[str] = NAMES) -> None:
        self.streams = RequestStreams()
        self.engine: list[str] = []
        self.deaths: list[list[str]] = []
        """What each engine had that died."""
        for name in names:
            self.submit(name)

    def submit(self, name: str) -> None:
        params = SamplingParams(max_tokens=9)
        spec = RequestSpec(id=name, prompt=[1], params=params, seed=0, arrival=float(len(self.streams)))
        self.streams.add(RequestStream(spec))
        if not self.streams.waits(name):
            self.engine.append(name)

    def die(self, *, fault: bool = True) -> str | None:
        self.deaths.append(self.engine)
        killer = self.streams.interrupt(fault=fault, reason="SIGSEGV")
        self.engine = [spec.id for spec in self.streams.hand_over()]
        return killer.spec.id if killer else None

    def step(self) -> None:
        """Every request in the engine gets a token."""
        for name in list(self.engine):
            stream = self.streams.get(name)
            assert stream is not None
            stream.deliver(Delta(request_id=name, tokens=[7]))
            self.engine += [spec.id for spec in self.streams.next_suspects(name)]


def error_of(server: Server, name: str) -> str:
    stream = server.streams.get(name)
    assert stream is not None
    with pytest.raises(EngineError) as caught:
        while asyncio.run(stream.next()):
            pass
    return str(caught.value)


def run(server: Server, killer: str) -> str:
    """Serve until the killer is found."""
    for _ in range(20):
        if killer in server.engine:
            if (found := server.die()) is not None:
                return found
        else:
            server.step()
    raise AssertionError("it was never found")


@pytest.mark.parametrize("killer", NAMES)
def test_only_what_was_alone_in_two_engines_that_died_is_ended(killer: str) -> None:
    server = Server()
    assert run(server, killer) == killer
    assert server.deaths.count([killer]) == 2
    assert "served this request alone: SIGSEGV" in error_of(server, killer)
    for _ in range(5):
        server.step()
    assert set(server.engine) == set(NAMES) - {killer}, "all others go on"


def test_a_request_that_is_alone_from_the_start_is_found_at_its_second_death() -> None:
    server = Server("a")
    assert server.die() is None
    assert server.die() == "a"


def test_while_one_is_tried_alone_what_comes_waits() -> None:
    server = Server("a")
    server.die()
    server.submit("new")
    assert server.engine == ["a"] and server.streams.waits("new")
    server.step()
    assert set(server.engine) == {"a", "new"} and not server.streams.waits("new")


def test_a_suspect_that_leaves_makes_way() -> None:
    server = Server("a")
    server.die()
    server.submit("new")
    server.streams.remove("a")
    assert [spec.id for spec in server.streams.next_suspects("a")] == ["new"]


def test_kills_from_outside_make_nothing_a_suspect() -> None:
    """Of 64 requests, 3 were lost in 5 kills."""
    server = Server([f"r{i}" for i in range(64)])
    for _ in range(5):
        assert server.die(fault=False) is None
        assert len(server.engine) == 64, "all go on at once, together"
    lone = Server("a")
    assert [lone.die(fault=False) for _ in range(5)] == [None] * 5
    assert lone.engine == ["a"]


def test_a_kill_from_outside_does_not_end_a_trial() -> None:
    server = Server("ab")
    server.die()
    server.die()
    assert server.engine == ["a"], "suspects go one by one"
    server.die(fault=False)
    assert server.engine == ["a"]
    server.step()
    assert server.engine == ["a", "b"]


def test_a_suspect_that_was_tried_among_others_is_tried_alone_next() -> None:
    server = Server("ab")
    server.die()
    server.die()
    server.step()  # "a" has survived, so "b" is tried beside it
    assert server.engine == ["a", "b"]
    assert server.die() is None
    assert server.engine == ["b"]
