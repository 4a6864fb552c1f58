"""What a request needs first, such as a compiled grammar, is done while others are served."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import echo_engine
import httpx
import pytest
from running_server import RunningServer, Start, eventually

from turnout.config import EngineConfig
from turnout.core.errors import Overloaded
from turnout.core.types.messages import Abort, Command, Delta, Event, Shutdown, Submit
from turnout.core.types.request import RequestSpec, Resumption
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.server.engine.loop import EngineLoop
from turnout.server.engine.preparation import Preparation
from turnout.server.engine.streams.request_stream import RequestStream

COMPLETIONS = "/v1/completions"
THINKING = 2.0
"""Seconds, see echo_engine.py."""


def test_others_are_served_meanwhile(server: RunningServer) -> None:
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(server.post, COMPLETIONS, prompt="abc", max_tokens=4, guided_choice=["long"])
        time.sleep(0.1)
        for _ in range(5):
            assert server.post(COMPLETIONS, prompt="abc", max_tokens=4).status_code == 200
        assert not slow.done()
        assert slow.result().json()["choices"][0]["text"] == "abca"


def test_several_are_prepared_at_once(server: RunningServer) -> None:
    """One alone would wait for the other, and fail."""
    asked = {"prompt": "a", "guided_choice": ["together"]}
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(server.post, COMPLETIONS, **asked) for _ in range(2)]
        assert [answer.result().status_code for answer in waiting] == [200, 200]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("bad", "that is not one of the choices"),
        ("broken", "thinking: prepare failed: RuntimeError: the echo engine failed"),
    ],
)
def test_what_goes_wrong_is_told(server: RunningServer, choice: str, message: str, stream: bool) -> None:
    response = server.post(COMPLETIONS, prompt="a", guided_choice=[choice], stream=stream)
    assert response.status_code == 400
    error = response.json()["error"]
    assert message in error["message"]
    assert error["param"] == ("guided_choice" if choice == "bad" else None)


def test_extra_arguments_reach_the_processors_that_declare_them(server: RunningServer) -> None:
    response = server.post(COMPLETIONS, prompt="a", vllm_xargs={"thought": "bad"})
    assert response.status_code == 400
    found = response.json()["error"]
    # The parameter is the processor's to name, right or wrong; one that was not given once ended in a 500.
    assert (found["message"], found["param"]) == ("that is not one of the choices", "structured_outputs")
    assert server.post(COMPLETIONS, prompt="a", vllm_xargs={"thought": None}).status_code == 200


def test_who_leaves_meanwhile_is_not_served(start: Start) -> None:
    server = start()
    with pytest.raises(httpx.ReadTimeout):
        server.http.post(COMPLETIONS, json={"prompt": "a", "guided_choice": ["long"]}, timeout=0.3)
    time.sleep(1.2 * THINKING)
    assert server.post(COMPLETIONS, prompt="a", max_tokens=3).status_code == 200
    eventually(lambda: server.client.stats and server.client.stats.output_tokens == 3)


def test_not_more_than_may_wait(start: Start) -> None:
    server = start({"max_waiting": 1})
    with ThreadPoolExecutor() as threads:
        first = threads.submit(server.post, COMPLETIONS, prompt="a", guided_choice=["long"])
        time.sleep(0.2)
        refused = server.post(COMPLETIONS, prompt="a", guided_choice=["long"])
        assert refused.status_code == 503 and "being prepared" in refused.json()["error"]["message"]
        assert first.result().status_code == 200


class Wire:
    """An engine's end of a channel: what has come, and what was sent."""

    def __init__(self, *commands: Command) -> None:
        self._commands = list(commands)
        self.sent: list[Event] = []

    def receive(self) -> list[Command]:
        came, self._commands = self._commands, []
        return came

    def send(self, events: list[Event]) -> None:
        self.sent += events


def test_who_awaits_its_timing_is_told_that_there_is_none() -> None:
    """A request that went on with a new engine was ended by a stop string while it was prepared, and its
    stream stayed open for ever.
    """
    params = SamplingParams(structured_outputs=StructuredOutputs(choice=("long",)))
    spec = RequestSpec(id="r", prompt=[1], params=params, seed=0, timing=True)
    wire = Wire(Submit(spec), Abort("r", 0, timing=True), Shutdown())
    EngineLoop(echo_engine.build(EngineConfig()), wire).run()
    assert wire.sent == [Delta(request_id="r", finish_reason="abort")]
    live = RequestStream(spec)
    live.abort(0)
    assert not live.over
    live.deliver(wire.sent[0])
    assert live.over


class Waiting(Wire):
    """Whose server waits for the end of a request, and shuts down then."""

    def receive(self) -> list[Command]:
        ended = any(isinstance(event, Delta) and event.finish_reason for event in self.sent)
        return [*super().receive(), *([Shutdown()] if ended else [])]

    def wait(self, seconds: float | None) -> None:
        assert seconds is not None, "the request is not served, and never will be"
        time.sleep(seconds)


def test_a_choice_that_ends_meanwhile_leaves_the_others() -> None:
    """A request of two choices went on with a new engine. A stop string ended one of them while the request
    was prepared, and the other was never served.
    """
    params = SamplingParams(n=2, max_tokens=4, structured_outputs=StructuredOutputs(choice=("long",)))
    resume = Resumption(choices=[(0, [1]), (1, [1])])
    spec = RequestSpec(id="r", prompt=[1], params=params, seed=0, timing=True, resume=resume)
    wire = Waiting(Submit(spec), Abort("r", 0, timing=True))
    EngineLoop(echo_engine.build(EngineConfig()), wire).run()
    deltas = [event for event in wire.sent if isinstance(event, Delta)]
    assert {delta.index for delta in deltas} == {1}
    assert deltas[-1].finish_reason == "length" and deltas[-1].timing is not None


def test_a_request_whose_last_choice_ends_meanwhile_is_dropped() -> None:
    params = SamplingParams(n=2, structured_outputs=StructuredOutputs(choice=("long",)))
    spec = RequestSpec(
        id="r", prompt=[1], params=params, seed=0, timing=True, resume=Resumption(choices=[(1, [1])])
    )
    wire = Wire(Submit(spec), Abort("r", 1, timing=True), Shutdown())
    EngineLoop(echo_engine.build(EngineConfig()), wire).run()
    assert wire.sent == [Delta(request_id="r", index=1, finish_reason="abort")]


class Work:
    cancelled = False

    def __call__(self) -> None:
        assert self.cancelled

    def cancel(self) -> None:
        self.cancelled = True


def test_a_request_for_which_no_thread_can_be_started_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine ended by the RuntimeError, and with it all other requests."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    preparation, work = Preparation(8), Work()
    request = RequestSpec(id="r", prompt=[1], params=SamplingParams(), seed=0)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Overloaded, match="can't start new thread; try again"):
        preparation.begin(request, [work])
    assert work.cancelled and not preparation.busy
    monkeypatch.setattr(threading.Thread, "start", start)
    preparation.begin(request, [work])
    preparation.close()
