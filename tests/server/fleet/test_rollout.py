"""A rollout replaces all engines under load: nothing is lost, and tokens are those of one configuration."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from asking import COMPLETIONS
from click.testing import CliRunner
from echo_engine import STARTS
from running_server import RunningServer, Start, eventually

from turnout.cli.main import cli
from turnout.config import EngineConfig
from turnout.core.types.messages import ListPrefixes, SetScheduler, ShowScheduler
from turnout.server.engine.admin_journal import AdminJournal
from turnout.server.fleet.generation import Generation
from turnout.server.fleet.rollout import Rollout

ROLLOUT, REPLICAS = "/admin/rollout", "/admin/replicas"

Answers = list[Future[httpx.Response]]


@pytest.fixture
def two(start: Start) -> RunningServer:
    return start(replicas=2, admin_key=[])


def begin(server: RunningServer, drain_timeout: float = 60, **changes: object) -> httpx.Response:
    return server.post(ROLLOUT, action="start", changes=changes, drain_timeout=drain_timeout)


def report(server: RunningServer) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get(ROLLOUT).json()
    return found


def ended(server: RunningServer, state: str) -> None:
    eventually(lambda: report(server)["state"] not in ("rolling", "undoing"), 60)
    assert report(server)["state"] == state, report(server)


def names(server: RunningServer) -> list[str]:
    return [each["name"] for each in server.http.get(REPLICAS).json()["replicas"]]


def ask(server: RunningServer, number: int, **body: object) -> httpx.Response:
    given = {"prompt": f"{number:03d}", "max_tokens": 200, "user": "brisk", **body}
    return server.post(COMPLETIONS, **given)


def said(answer: Future[httpx.Response]) -> str:
    return str(answer.result(60).json()["choices"][0]["text"])


def expected(number: int, length: int = 200) -> str:
    return (f"{number:03d}" * length)[:length]


def delivered(server: RunningServer) -> int:
    streams = [stream for replica in server.fleet.replicas for stream in replica.client.streams.unfinished]
    return sum(len(output) for stream in streams for output in stream.outputs.values())


def told(server: RunningServer, command: Any) -> list[Any]:
    """What each engine answers itself."""
    clients = [replica.client for replica in server.fleet.replicas]
    return [asyncio.run_coroutine_threadsafe(c.admin(command), server.loop).result(10).value for c in clients]


# ------------------------------------------------------------------ under load


def test_64_streams_lose_and_change_nothing(two: RunningServer) -> None:
    with ThreadPoolExecutor(64) as pool:
        answers: Answers = [pool.submit(ask, two, number, max_tokens=400) for number in range(64)]
        eventually(lambda: delivered(two) > 200, 20)
        assert begin(two, scheduler="sjf", max_num_seqs=96).json()["state"] == "rolling"
        ended(two, "done")
        assert [said(answer) for answer in answers] == [expected(number, 400) for number in range(64)]
    assert names(two) == ["2", "3"]
    assert [state.scheduler for state in told(two, ShowScheduler())] == ["sjf", "sjf"]
    assert two.post(REPLICAS, action="add").status_code == 200
    eventually(lambda: [each.condition for each in two.fleet.replicas] == ["serving"] * 3, 15)
    assert [state.scheduler for state in told(two, ShowScheduler())] == ["sjf"] * 3, "those to come, too"


@pytest.mark.slow
def test_streams_whose_tokens_would_change_end_in_their_engine(two: RunningServer) -> None:
    """New requests get the new tokens, and no stream gets some of both."""
    with ThreadPoolExecutor(16) as pool:
        answers: Answers = [pool.submit(ask, two, number) for number in range(16)]
        eventually(lambda: delivered(two) > 60, 20)
        begin(two, dtype="float16")
        ended(two, "done")
        assert [said(answer) for answer in answers] == [expected(number) for number in range(16)]
    assert ask(two, 1, max_tokens=6).json()["choices"][0]["text"] == "112112"


@pytest.mark.slow
def test_a_dead_engine_s_streams_go_on_with_their_own_tokens(two: RunningServer) -> None:
    """While engines of both configurations serve."""
    with ThreadPoolExecutor(8) as pool:
        answers: Answers = [pool.submit(ask, two, number, max_tokens=300) for number in range(8)]
        eventually(lambda: delivered(two) > 60, 20)
        begin(two, dtype="float16")
        eventually(lambda: "2" in names(two) and two.fleet.named("2").condition == "serving", 20)
        os.kill(two.fleet.named("1").client.pid or 0, signal.SIGKILL)
        assert [said(answer) for answer in answers] == [expected(number, 300) for number in range(8)]
        ended(two, "done")


@pytest.mark.parametrize(("action", "left"), [("restart", 2), ("remove", 1)])
def test_one_that_is_leaving_when_a_rollout_begins_is_not_replaced_twice(
    two: RunningServer, action: str, left: int
) -> None:
    """An engine more would serve, with the configuration of before."""
    with ThreadPoolExecutor(4) as pool:
        answers: Answers = [pool.submit(ask, two, number) for number in range(4)]
        eventually(lambda: delivered(two) > 20, 20)
        assert two.post(REPLICAS, action=action, replica="0").status_code == 200
        begin(two, scheduler="sjf")
        ended(two, "done")
        assert [said(answer) for answer in answers] == [expected(number) for number in range(4)]
    eventually(lambda: all(each.condition == "serving" for each in two.fleet.replicas), 15)
    assert [state.scheduler for state in told(two, ShowScheduler())] == ["sjf"] * left


def test_a_drained_replica_stays_drained(two: RunningServer) -> None:
    assert two.post(REPLICAS, action="drain", replica="0").status_code == 200
    begin(two, scheduler="sjf")
    ended(two, "done")
    assert [each.condition for each in two.fleet.replicas] == ["drained", "serving"]
    assert ask(two, 1).status_code == 200
    assert two.post(REPLICAS, action="restart", replica="2").status_code == 200
    eventually(lambda: [each.condition for each in two.fleet.replicas] == ["serving"] * 2, 15)


@pytest.mark.slow
def test_those_that_take_longer_than_the_drain_time_end_with_its_reason(two: RunningServer) -> None:
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(ask, two, 1, max_tokens=500, user="slow")
        eventually(lambda: delivered(two) > 5)
        begin(two, drain_timeout=0.2, dtype="float16")
        response = answer.result(30)
        ended(two, "done")
    assert response.status_code == 503
    message = "the engine was replaced, and the request took over 0.2 s"
    assert message in response.json()["error"]["message"]


# ------------------------------------------------------------------ what does not start


@pytest.mark.slow
@pytest.mark.parametrize("before", [[], ["serves"]], ids=["the first", "the second"])
def test_an_engine_that_does_not_start_leaves_all_as_it_was(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[str]
) -> None:
    starts = tmp_path / "starts"
    monkeypatch.setenv(STARTS, str(starts))
    starts.write_text("serves\nserves")
    server = start(replicas=2, admin_key=[])
    starts.write_text("\n".join([*before, "is refused"]))
    with ThreadPoolExecutor(8) as pool:
        answers: Answers = [pool.submit(ask, server, number) for number in range(8)]
        eventually(lambda: delivered(server) > 30)
        begin(server, scheduler="sjf")
        ended(server, "undone")
        assert [said(answer) for answer in answers] == [expected(number) for number in range(8)]
    assert report(server)["reason"].endswith("the device is gone")
    assert [state.scheduler for state in told(server, ShowScheduler())] == ["fcfs", "fcfs"]
    assert ("0" in names(server)) == (not before), "those that were replaced have come back under other names"


@pytest.mark.slow
def test_an_engine_with_a_shorter_context_is_refused(two: RunningServer) -> None:
    begin(two, max_model_len=100)
    ended(two, "undone")
    assert "its context is 100 tokens" in report(two)["reason"].replace("the new engine's", "its")
    assert names(two) == ["0", "1"]


def test_what_cannot_be_is_refused_at_once(two: RunningServer) -> None:
    for changes, message in (
        ({"schedular": "sjf"}, "no option of an engine is called 'schedular'"),
        ({"scheduler": "nonesuch"}, "no scheduler is called 'nonesuch'"),
        ({"max_num_seqs": "many"}, "max_num_seqs"),
        ({"chat_template": "x"}, "for the server's own process"),
        ({}, "nothing is to be changed"),
    ):
        response = begin(two, **changes)
        assert response.status_code == 400
        assert message in response.json()["error"]["message"].replace("--", "").replace("-", "_")
    assert report(two)["state"] == "none"
    assert two.post(ROLLOUT, action="undo").status_code == 409


# ------------------------------------------------------------------ steering it


@pytest.mark.slow
def test_one_that_was_paused_can_be_resumed_or_undone(two: RunningServer) -> None:
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(ask, two, 1, max_tokens=300)
        eventually(lambda: delivered(two) > 5)
        begin(two, dtype="float16")
        assert two.post(REPLICAS, action="add").status_code == 409, "a rollout is at it"
        assert two.post(ROLLOUT, action="pause").json()["state"] == "paused"
        assert begin(two, dtype="float16").status_code == 409
        assert two.post(ROLLOUT, action="resume").json()["state"] == "rolling"
        ended(two, "done")
        assert said(answer) == expected(1, 300)
    assert two.post(ROLLOUT, action="undo").json()["state"] == "undoing"
    assert two.post(ROLLOUT, action="pause").json()["state"] == "paused"
    assert "being undone, and paused" in two.post(ROLLOUT, action="undo").text
    assert two.post(ROLLOUT, action="resume").json()["state"] == "undoing", "it went forward again"
    ended(two, "undone")
    assert ask(two, 1, max_tokens=6).json()["choices"][0]["text"] == "001001"
    assert len(names(two)) == 2


@pytest.mark.slow
def test_policies_and_pins_reach_the_engines_of_a_rollout(two: RunningServer) -> None:
    two.post("/admin/scheduler", name="ljf")
    assert two.post("/admin/prefixes", name="p", prompt="x" * 64).status_code == 200
    begin(two, max_num_seqs=32)
    ended(two, "done")
    assert [state.scheduler for state in told(two, ShowScheduler())] == ["ljf", "ljf"]
    assert [[pin.name for pin in pins.prefixes] for pins in told(two, ListPrefixes())] == [["p"], ["p"]]
    begin(two, scheduler="sjf")
    ended(two, "done")
    assert [state.scheduler for state in told(two, ShowScheduler())] == ["sjf", "sjf"], "it names another"


def test_what_an_engine_takes_up_late_reaches_the_engines_of_a_rollout_too(
    two: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that was answered with 504 was kept for the engines of one configuration alone."""
    begin(two, max_num_seqs=32)
    assert two.post(ROLLOUT, action="pause").json()["state"] == "paused"
    rollout = two.fleet.rollout
    assert rollout is not None
    engines = [replica.client.pid for replica in two.fleet.replicas if replica.generation is rollout.old]
    with monkeypatch.context() as patch:
        patch.setattr("turnout.server.engine.replies.ADMIN_TIMEOUT_SECONDS", 0.05)
        for pid in engines:
            os.kill(pid or 0, signal.SIGSTOP)
        try:
            assert two.post("/admin/scheduler", name="ljf").status_code == 504
        finally:
            for pid in engines:
                os.kill(pid or 0, signal.SIGCONT)
    for generation in (rollout.old, rollout.new):
        eventually(lambda journal=generation.journal: SetScheduler in map(type, journal.commands()))


@pytest.mark.slow
def test_the_command_tells_of_each_step(two: RunningServer) -> None:
    run = CliRunner().invoke
    none = run(cli, ["rollout", "--url", two.url, "--status"])
    assert none.exit_code == 0 and none.output == "none, 0 of 2 replicas\n"
    done = run(cli, ["rollout", "--url", two.url, "--scheduler", "sjf"])
    assert done.exit_code == 0 and done.output.splitlines()[-1] == "done, 2 of 2 replicas; scheduler=sjf"
    undone = run(cli, ["rollout", "--url", two.url, "--max-model-len", "9"])
    assert undone.exit_code == 1 and "the rollout is undone: the new engine's context" in undone.output
    assert run(cli, ["rollout", "--url", two.url, "--status"]).output.startswith("undone, 2 of 2 replicas")
    assert run(cli, ["rollout", "--url", two.url]).exit_code == 2
    assert "no answer from" in run(cli, ["rollout", "--url", "localhost:1", "--undo"]).output


def test_a_step_that_was_stopped_ends_before_any_other_begins() -> None:
    """Undone, paused and resumed at once, two steps had the same worker start an engine each."""
    at_work: list[object] = []
    most = 0

    class Slow(Rollout):
        async def _replace_all(self, target: Generation) -> None:
            nonlocal most
            at_work.append(target)
            most = max(most, len(at_work))
            try:
                await asyncio.sleep(0.05 if len(tasks) > 1 else 60)
            finally:
                await asyncio.shield(asyncio.sleep(0.05))  # the engine of before comes back
                at_work.pop()

    tasks: list[asyncio.Task[None]] = []

    def in_background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.get_running_loop().create_task(work))
        return tasks[-1]

    async def main() -> None:
        one = Generation.first(EngineConfig(model="echo"), 1, AdminJournal())
        fleet: Any = SimpleNamespace(generation=one, in_background=in_background)
        rollout = Slow(fleet, one, 1.0)
        rollout.begin()
        await asyncio.sleep(0.01)
        for change in (rollout.undo, rollout.pause, rollout.resume):
            change()
            await asyncio.sleep(0)
        await asyncio.wait(tasks)
        assert rollout.state == "undone" and most == 1

    asyncio.run(main())
