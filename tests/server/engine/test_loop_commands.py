"""Commands that come by the thousand do not hold up the requests that are being served."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from turnout.core.engine.recording.profiling import Profiling
from turnout.core.errors import Overloaded, RequestError
from turnout.core.types.messages import (
    Command,
    Delta,
    Event,
    LoadProgress,
    ProfileFiles,
    Reply,
    Reset,
    StartProfile,
    Submit,
)
from turnout.core.types.request import RequestSpec, Resumption
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.engine.loop import COMMAND_SECONDS, EngineLoop


class Engine:
    """Notes what it is given; admitting a request takes a quarter of what commands may take."""

    limits = SimpleNamespace(max_waiting=100)
    place = ""

    def __init__(self, *, busy: bool) -> None:
        self.busy = busy
        self.added: list[str] = []

    def preparation(self, spec: RequestSpec) -> list[Any]:
        return []

    def add(self, spec: RequestSpec) -> None:
        self.added.append(spec.id)


def request(number: int) -> RequestSpec:
    return RequestSpec(id=str(number), prompt=[1], params=SamplingParams(), seed=0)


class Channel:
    """What came so far, each command once."""

    def __init__(self, commands: int) -> None:
        self._left = [Submit(request(number)) for number in range(commands)]

    def receive(self) -> Iterator[Command]:
        while self._left:
            yield self._left.pop(0)

    def wait(self, seconds: float | None) -> None:
        sleep(seconds or 0)


def loop_with(engine: Engine, commands: int) -> EngineLoop:
    ticks = count()
    assembled: Any = SimpleNamespace(scheduler="fcfs", engine=engine)
    channel: Any = Channel(commands)
    return EngineLoop(assembled, channel, clock=lambda: next(ticks) * COMMAND_SECONDS / 4)


def test_a_busy_engine_goes_on_after_a_few_commands() -> None:
    engine = Engine(busy=True)
    loop = loop_with(engine, 100)
    assert loop._handle_commands()
    assert 1 <= len(engine.added) <= 6
    for _ in range(100):
        assert loop._handle_commands()
    assert engine.added == [str(number) for number in range(100)]


def test_an_idle_engine_takes_all_that_came() -> None:
    engine = Engine(busy=False)
    assert loop_with(engine, 100)._handle_commands()
    assert len(engine.added) == 100


class PreparingEngine(Engine):
    """Every request has work to be done first; then a step makes a token of each."""

    def preparation(self, spec: RequestSpec) -> list[Any]:
        return [lambda: sleep(0.05)]

    def add(self, spec: RequestSpec) -> None:
        super().add(spec)
        self.busy = True

    def step(self) -> list[Delta]:
        return [Delta(request_id=id, tokens=[1]) for id in self.added]


def test_nothing_is_held_of_a_resumed_request_that_was_prepared_in_an_idle_engine() -> None:
    """While it was prepared, the engine forgot that its tokens are to be sent as they come."""
    engine = PreparingEngine(busy=False)
    loop = loop_with(engine, 0)
    sent: list[Event] = []
    loop._channel.send = sent.extend  # type: ignore[method-assign]
    loop._reported = math.inf  # it has no figures
    loop._interval.seconds = 1000.0
    loop._submit(msgspec.structs.replace(request(7), resume=Resumption(choices=[])))
    while not engine.added:
        loop._step()
    sent.clear()
    loop._step()
    assert sent == [Delta(request_id="7", tokens=[1])]


class RefusingEngine(Engine):
    def __init__(self, error: RequestError) -> None:
        super().__init__(busy=False)
        self.error = error

    def add(self, spec: RequestSpec) -> None:
        raise self.error

    def abort(self, request_id: str) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (RequestError("no \ud800"), "invalid", "no ?"),
        (RequestError("no", param=7), "internal", "cannot be sent"),  # type: ignore[arg-type]
        (Overloaded("no", retry_after="soon"), "internal", "cannot be sent"),  # type: ignore[arg-type]
    ],
)
def test_a_plugins_refusal_that_cannot_be_sent_harms_no_engine(
    error: RequestError, kind: str, text: str
) -> None:
    """Half of a surrogate pair in the text of a RequestError ended every engine that got the request."""
    loop, sent = loop_with(RefusingEngine(error), 1), list[bytes]()
    loop._channel.send = lambda events: sent.append(msgspec.msgpack.encode(events))  # type: ignore[method-assign]
    assert loop._handle_commands()
    (message,) = sent
    (delta,) = msgspec.msgpack.decode(message, type=list[Event])
    assert (delta.request_id, delta.finish_reason, delta.error_kind) == ("0", "error", kind)
    assert text in delta.error


def test_the_profile_of_a_server_that_has_left_ends_with_it(tmp_path: Path) -> None:
    """The next server of a worker was told that a profile is being taken already, for up to five minutes."""

    class Taken:
        stopped = False

        def stop(self) -> ProfileFiles:
            self.stopped = True
            return ProfileFiles([], [])

    engine: Any = Engine(busy=False)
    engine.scheduler = SimpleNamespace(kv=SimpleNamespace(prefixes=None))
    engine.abort_all = lambda: None
    loop, taken = loop_with(engine, 0), Taken()
    sent: list[Event] = []
    loop._channel.send = sent.extend  # type: ignore[method-assign]
    loop._assembled.ready = LoadProgress(1.0)  # type: ignore[misc, assignment]  # stands for it
    loop._profiling = Profiling(lambda *_: taken, loop._clock)  # type: ignore[arg-type, return-value]
    for command in (StartProfile(str(tmp_path)), Reset(), StartProfile(str(tmp_path))):
        assert loop._carry_out(command)
    assert taken.stopped
    assert [event.error for event in sent if isinstance(event, Reply)] == ["", ""]
