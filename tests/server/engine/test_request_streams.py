"""Which requests are given to the engine that takes over, and which is found to kill engines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from turnout.core.clock import monotonic
from turnout.core.errors import EngineError
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.engine.streams import request_stream, request_streams
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.engine.streams.request_streams import RequestStreams

NAMES = ("a", "b", "c", "d")


class Server:
    """The streams, and an engine that gives each of its requests a token in a step."""

    def __init__(self, names: Iterable[str] = NAMES, event_interval: float = 0.0) -> None:
        self.streams = RequestStreams(event_interval)
        self.engine: list[str] = []
        self.deaths: list[list[str]] = []
        """What each engine had that died."""
        for name in names:
            self.submit(name)

    def submit(self, name: str) -> None:
        params = SamplingParams(max_tokens=99)
        spec = RequestSpec(id=name, prompt=[1], params=params, seed=0, arrival=float(len(self.streams)))
        self.take(RequestStream(spec))

    def take(self, stream: RequestStream) -> None:
        self.engine += [spec.id for spec in self.streams.add(stream)]

    def die(self, *, fault: bool = True, begun: Iterable[str] | None = None) -> str | None:
        self.deaths.append(self.engine)
        begun = self.engine if begun is None else begun
        killer = self.streams.interrupt(fault=fault, reason="SIGSEGV", begun=tuple(begun))
        self.engine = [spec.id for spec in self.streams.hand_over()]
        return killer.spec.id if killer else None

    def step(self, tokens: int = 1) -> None:
        """Every request in the engine gets an event with so many tokens."""
        for name in list(self.engine):
            stream = self.streams.get(name)
            assert stream is not None
            stream.deliver(Delta(request_id=name, tokens=[7] * tokens))
            self.engine += [spec.id for spec in self.streams.next_suspects(name)]

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()


def error_of(server: Server, name: str) -> str:
    stream = server.streams.get(name)
    assert stream is not None
    with pytest.raises(EngineError) as caught:
        while asyncio.run(stream.next()):
            pass
    return str(caught.value)


def run(server: Server, killer: str) -> str:
    """Serve until the killer is found."""
    for _ in range(200):
        if killer in server.engine:
            if (found := server.die()) is not None:
                return found
        else:
            server.step()
    raise AssertionError("it was never found")


# ------------------------------------------------------------------ a request that kills


@pytest.mark.parametrize("tokens", [0, 1, 5], ids=lambda tokens: f"after {tokens} tokens")
@pytest.mark.parametrize("killer", NAMES)
def test_one_that_kills_is_found_at_its_third_death(killer: str, tokens: int) -> None:
    """Five deaths were needed."""
    server = Server()
    server.steps(tokens)
    assert run(server, killer) == killer
    assert len(server.deaths) == 3
    assert server.deaths[-1] == [killer]
    assert "served this request alone: SIGSEGV" in error_of(server, killer)
    assert set(server.engine) == set(NAMES) - {killer}, "all others go on at once"
    assert not server.streams.suspects


@pytest.mark.parametrize("killer", NAMES)
def test_one_that_makes_anew_what_was_lost_is_found_as_soon(
    monkeypatch: pytest.MonkeyPatch, killer: str
) -> None:
    """An engine takes along what it holds for an event. A request that died at a token seemed to survive."""
    now = 0.0
    for module in (request_stream, request_streams):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    server = Server(event_interval=0.01)
    server.steps(5)
    assert server.die() is None
    while killer not in server.engine:
        server.step()
        now += 0.02
    server.step()
    now += 0.01
    assert server.die() is None
    assert server.engine == [killer]
    assert server.die() == killer


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("killer", NAMES)
def test_one_that_makes_anew_what_was_lost_on_a_slower_engine_is_found_as_soon(
    monkeypatch: pytest.MonkeyPatch, killer: str, lost: int
) -> None:
    """Two intervals had passed while it made the lost tokens alone, and it was no suspect any more."""
    now = 0.0
    for module in (request_stream, request_streams):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    server = Server(event_interval=0.01)
    server.step(tokens=3)
    assert server.die() is None
    while killer not in server.engine:
        server.step()
        now += 0.1
    for _ in range(lost):
        server.step()
        now += 0.1
    assert server.die() is None
    assert server.engine == [killer]
    assert server.die() == killer


def test_one_of_64_is_found_as_soon() -> None:
    server = Server([f"r{i}" for i in range(64)])
    server.steps(3)
    assert run(server, "r17") == "r17"
    assert len(server.deaths) == 3


def test_one_that_came_last_is_tried_before_all_that_had_tokens() -> None:
    server = Server()
    server.steps(3)
    server.submit("new")
    assert server.die() is None
    assert server.engine == ["new"], "alone"
    assert [server.die(), server.die()] == [None, "new"]


def test_a_request_that_is_alone_from_the_start_is_found_at_its_second_death() -> None:
    server = Server("a")
    assert server.die() is None
    assert server.die() == "a"


def test_one_that_kills_where_others_are_served_is_found_at_its_third_death() -> None:
    """It goes from engine to engine with the other suspects, as in a fleet."""
    first, second = Server(), Server("wxyz")
    first.steps(3)
    second.steps(3)
    first.die()
    for stream in first.streams.movable():
        first.streams.remove(stream.spec.id)
        second.take(stream)
    assert second.engine == [*"wxyz", "d"], "one by one, and the newest first"
    second.steps(2)
    second.submit("new")
    assert second.engine == [*"wxyz", "d", "c", "new"]
    assert second.die() is None
    *free, b, a = [stream.spec.id for stream in second.streams.movable()]
    assert set(free) == {*"wxyz", "d", "new"} and [b, a] == ["b", "a"], "suspects still"
    assert second.engine == ["c"], "alone"
    assert second.die() == "c"


# ------------------------------------------------------------------ those that do not


def test_what_the_engine_had_not_begun_with_is_not_suspected() -> None:
    server = Server()
    assert server.die(begun=["b"]) is None
    assert [stream.spec.id for stream in server.streams.suspects] == ["b"]
    assert [stream.spec.id for stream in server.streams.movable()] == ["a", "c", "d"]
    assert server.engine == ["b"]
    server.steps(2)
    assert server.engine == ["b", "a", "c", "d"]


def test_a_death_with_nothing_begun_blames_none() -> None:
    server = Server()
    assert [server.die(begun=()) for _ in range(5)] == [None] * 5
    assert server.engine == [*NAMES]


def test_suspects_that_survive_are_none_any_more() -> None:
    server = Server()
    server.die()
    assert server.engine == ["d"]
    server.steps(8)
    assert server.engine == ["d", "c", "b", "a"]
    assert not server.streams.suspects and not server.streams.trying and not server.streams.closed


def test_while_suspects_are_tried_what_comes_waits() -> None:
    server = Server("a")
    server.die()
    server.submit("new")
    assert server.engine == ["a"] and server.streams.closed
    server.step()
    assert server.engine == ["a"], "one token may have been lost with the engine"
    server.step()
    assert set(server.engine) == {"a", "new"} and not server.streams.closed


def test_a_suspect_that_leaves_makes_way() -> None:
    server = Server("a")
    server.die()
    server.submit("new")
    server.streams.remove("a")
    assert [spec.id for spec in server.streams.next_suspects("a")] == ["new"]


def test_a_suspect_without_tokens_makes_way_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("ab")
    server.die()
    assert server.engine == ["b"] and not server.streams.when_late()
    monkeypatch.setattr(request_streams, "TRIAL_SECONDS", 0.0)
    assert [spec.id for spec in server.streams.when_late()] == ["a"]


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
    assert server.engine == ["b"], "suspects go one by one"
    server.die(fault=False)
    assert server.engine == ["b"]
    server.steps(2)
    assert server.engine == ["b", "a"]


# ------------------------------------------------------------------ the timing of what has ended


@pytest.mark.parametrize("ended", ["before it died", "while none serves it", "unknown to the next"])
def test_what_died_with_its_engine_is_told_by_the_server(ended: str) -> None:
    """The text was complete, and only the engine that is gone knew when."""
    arrival = monotonic()
    spec = RequestSpec(id="r", prompt=[1], params=SamplingParams(), seed=0, arrival=arrival, timing=True)
    stream = RequestStream(spec)
    streams = RequestStreams()
    streams.add(stream)
    stream.deliver(Delta(request_id="r", tokens=[7], begun=(0.25, 0.5)))
    if ended == "before it died":
        stream.abort(0)
    streams.interrupt(fault=False, reason="SIGSEGV")
    if ended == "while none serves it":
        stream.abort(0)
        assert stream.end_if_complete()
    elif ended == "unknown to the next":
        (resumed,) = streams.hand_over()
        stream.abort(0)
        assert not stream.over, "the engine is asked"
        stream.deliver(Delta(request_id=resumed.id, finish_reason="abort"))
    assert stream.over
    token, last, end = asyncio.run(take(stream, 3))
    assert token is not None and token.timing is None and end is None
    assert last is not None and last.timing is not None
    timing = last.timing
    assert (timing.scheduled, timing.first_token) == (arrival + 0.25, arrival + 0.75)
    assert timing.finished is not None and timing.finished >= arrival
    assert len(timing.preempted) == (ended != "before it died")


async def take(stream: RequestStream, count: int) -> list[Delta | None]:
    return [await stream.next() for _ in range(count)]


def test_choices_without_tokens_go_on_beside_those_that_have_some() -> None:
    """They were left out, and never came."""
    spec = RequestSpec(id="a", prompt=[1], params=SamplingParams(max_tokens=9, n=4), seed=0)
    stream = RequestStream(spec)
    stream.interrupt()
    assert stream.resumed().resume is not None and stream.resumed().resume.choices == []
    stream.deliver(Delta(request_id="a", index=2, tokens=[5, 6]))
    stream.deliver(Delta(request_id="a", index=1, tokens=[7], finish_reason="stop"))
    stream.interrupt()
    resume = stream.resumed().resume
    assert resume is not None and resume.choices == [(0, []), (2, [5, 6]), (3, [])]
