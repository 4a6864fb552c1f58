"""Workers that join a running server, and get another engine by a rollout: nothing lost, nothing changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import COMPLETIONS
from echo_engine import STARTS
from running_server import RunningServer, eventually
from worker_process import Connect, StartWorker, WorkerProcess

from turnout.config import EngineConfig
from turnout.core.types.messages import ShowScheduler
from turnout.plugins.launchers.static import Static
from turnout.plugins.routers.round_robin import RoundRobin
from turnout.server.engine import process
from turnout.server.engine.client import ProcessClient
from turnout.server.engine.remote import link
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.replica import ReplicaOrder

REPLICAS, ROLLOUT = "/admin/replicas", "/admin/rollout"

Answers = list[Future[httpx.Response]]


def listed(server: RunningServer) -> dict[str, tuple[str, str]]:
    replicas = server.http.get(REPLICAS).json()["replicas"]
    return {replica["name"]: (replica["worker"], replica["state"]) for replica in replicas}


def ask(server: RunningServer, number: int) -> str:
    body = {"prompt": f"{number:03d}", "max_tokens": 200, "user": "brisk"}
    response = server.post(COMPLETIONS, **body)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def expected(number: int) -> str:
    return (f"{number:03d}" * 200)[:200]


def schedulers(server: RunningServer) -> list[str]:
    """What each engine says itself."""
    asked = (replica.client.admin(ShowScheduler()) for replica in server.fleet.replicas)
    return [asyncio.run_coroutine_threadsafe(each, server.loop).result(10).value.scheduler for each in asked]


@contextmanager
def both_answer_eight(server: RunningServer) -> Iterator[None]:
    """While eight requests run, of which each replica has some; all are answered in full."""
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, server, number) for number in range(8)]
        eventually(lambda: all(replica.view.requests for replica in server.fleet.replicas))
        yield
        assert [answer.result(60) for answer in answers] == [expected(number) for number in range(8)]


def begin(server: RunningServer, **changes: object) -> httpx.Response:
    return server.post(ROLLOUT, action="start", changes=changes, drain_timeout=60)


def ended(server: RunningServer) -> dict[str, Any]:
    def report() -> dict[str, Any]:
        found: dict[str, Any] = server.http.get(ROLLOUT).json()
        return found

    eventually(lambda: report()["state"] not in ("rolling", "undoing"), 60)
    return report()


@pytest.mark.slow
def test_a_worker_joins_and_a_rollout_gives_each_another_engine(
    worker: StartWorker, connect: Connect
) -> None:
    """A worker has one engine at a time, so its replica is drained first; the next server finds its own."""
    one, other = worker(), worker()
    server = connect(one, admin_key=[])
    reply = begin(server, scheduler="sjf")
    assert reply.status_code == 409 and "the only replica that is not drained is a worker's" in reply.text
    for body, message in (
        ({"action": "add"}, "all engines run at workers; name the address of another"),
        ({"action": "add", "worker": one.url}, f"the worker at {one.url} is replica '0' already"),
        ({"action": "add", "worker": "x:1"}, "'x:1' is no address of a worker"),
        ({"action": "drain", "replica": "0", "worker": one.url}, "drain takes no worker"),
    ):
        reply = server.post(REPLICAS, **body)
        assert reply.status_code in (400, 409) and message in reply.json()["error"]["message"]
    assert server.post(REPLICAS, action="add", worker=other.url).status_code == 200
    serving = [(one.url, "serving"), (other.url, "serving")]
    eventually(lambda: [*listed(server).values()] == serving, 20)
    both = listed(server)
    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(ask, server, number) for number in range(16)]
        eventually(lambda: all(replica.view.requests for replica in server.fleet.replicas))
        assert begin(server, scheduler="sjf").status_code == 200
        assert ended(server)["state"] == "done"
        assert [answer.result(60) for answer in answers] == [expected(number) for number in range(16)]
    assert listed(server) == both and schedulers(server) == ["sjf", "sjf"]


@pytest.mark.slow
def test_the_replica_of_a_worker_is_restarted_where_it_was(worker: StartWorker, connect: Connect) -> None:
    one, other = worker(), worker()
    server = connect(one, other, admin_key=[])
    with both_answer_eight(server):
        before = server.fleet.named("0")
        assert server.post(REPLICAS, action="restart", replica="0").status_code == 200
        eventually(lambda: server.fleet.replicas[-1] is not before and len(listed(server)) == 2, 20)
        serving = {"0": (one.url, "serving"), "1": (other.url, "serving")}
        eventually(lambda: listed(server) == serving, 20)
    assert server.fleet.named("0") is not before


def test_the_replica_of_a_lost_worker_is_tried_until_the_worker_is_back(
    worker: StartWorker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart by command tried it once, and it had failed for good."""
    for module in (link, process):
        monkeypatch.setattr(module, "CONNECT_SECONDS", 1.0)
    one, other = worker(), worker()
    server = connect(one, other, admin_key=[])
    both = listed(server)
    one.kill()
    eventually(lambda: listed(server)["0"] == (one.url, "restarting"))
    before = server.fleet.named("0")
    assert server.post(REPLICAS, action="restart", replica="0").status_code == 200
    eventually(lambda: len(listed(server)) == 2 and server.fleet.named("0") is not before, 20)
    eventually(lambda: server.fleet.named("0").client.restarts > 0, 20)
    assert listed(server)["0"] == (one.url, "restarting")
    worker(listen=one.url)
    eventually(lambda: listed(server) == both, 40)


@pytest.mark.slow
def test_a_drained_replica_of_a_worker_stays_drained(worker: StartWorker, connect: Connect) -> None:
    one, other = worker(), worker()
    server = connect(one, other, admin_key=[])
    assert server.post(REPLICAS, action="drain", replica="0").status_code == 200
    reply = begin(server, scheduler="sjf")
    assert reply.status_code == 409, "it would wait for another that serves"
    assert "the only replica that is not drained is a worker's" in reply.text
    third = worker()
    assert server.post(REPLICAS, action="add", worker=third.url).status_code == 200
    states = {(one.url, "drained"), (other.url, "serving"), (third.url, "serving")}
    eventually(lambda: {*listed(server).values()} == states, 20)
    begin(server, scheduler="sjf")
    assert ended(server)["state"] == "done"
    assert {*listed(server).values()} == states and schedulers(server) == ["sjf"] * 3
    server.post(ROLLOUT, action="undo")
    assert ended(server)["state"] == "undone"
    assert {*listed(server).values()} == states and schedulers(server) == ["fcfs"] * 3


@pytest.mark.slow
def test_a_worker_takes_a_servers_changes_back_for_the_next(worker: StartWorker, connect: Connect) -> None:
    one, other = worker(), worker()
    server = connect(one, other, admin_key=[])
    begin(server, scheduler="sjf")
    assert ended(server)["state"] == "done"
    begin(server, max_num_seqs=32)
    assert ended(server)["state"] == "done"
    assert schedulers(server) == ["sjf", "sjf"], "of both rollouts"
    server.post(ROLLOUT, action="undo")
    assert ended(server)["state"] == "undone"
    for replica in list(server.fleet.replicas):
        if replica.client.place == one.url:
            server.post(REPLICAS, action="remove", replica=replica.name)
    eventually(lambda: len(listed(server)) == 1)
    second = connect(one)
    assert schedulers(second) == ["fcfs"] and ask(second, 7) == expected(7)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"scheduler": "sjf"}, {"max_model_len": 100}], ids=["refused", "shorter"]
)
def test_a_worker_whose_new_engine_does_not_serve_has_its_own_again(
    worker: StartWorker,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
) -> None:
    starts = tmp_path / "starts"
    monkeypatch.setenv(STARTS, str(starts))
    starts.write_text("serves\nserves")
    one, other = worker(), worker()
    server = connect(one, other, admin_key=[])
    both = listed(server)
    starts.write_text("is refused" if "scheduler" in changes else "")
    with both_answer_eight(server):
        begin(server, **changes)
        report = ended(server)
        assert report["state"] == "undone"
        assert "the device is gone" in report["reason"] or "context is 100 tokens" in report["reason"]
    assert listed(server) == both and schedulers(server) == ["fcfs", "fcfs"]


def test_a_rollout_is_refused_while_a_worker_is_lost(worker: StartWorker, connect: Connect) -> None:
    """It ended the lost one's replica, which nobody tried again when the worker was back."""
    one, other = worker(), worker()
    server = connect(one, other, admin_key=[])
    both = listed(server)
    one.kill()
    eventually(lambda: listed(server)["0"] == (one.url, "restarting"))
    reply = begin(server, scheduler="sjf")
    assert reply.status_code == 409
    assert reply.json()["error"]["message"] == (
        f"replica '0' has lost the engine at {one.url}, and tries it again; begin the rollout when it "
        "serves, or remove it first"
    )
    worker(listen=one.url)
    eventually(lambda: listed(server) == both, 40)


def in_the_first_turn(
    worker: StartWorker, connect: Connect
) -> tuple[WorkerProcess, WorkerProcess, RunningServer, dict[str, tuple[str, str]]]:
    """Two workers and their server, which gives the first another engine; and what it listed before."""
    one, other = worker(), worker()
    server = connect(one, other, admin_key=[])
    both = listed(server)
    begin(server, scheduler="sjf")
    eventually(lambda: listed(server).get("0") == (one.url, "starting"))
    return one, other, server, both


@pytest.mark.slow
def test_a_rollout_waits_for_a_worker_that_is_lost_before_its_turn(
    worker: StartWorker, connect: Connect
) -> None:
    _, other, server, both = in_the_first_turn(worker, connect)
    other.kill()
    eventually(lambda: [state for _, state in listed(server).values()] == ["restarting", "serving"], 20)
    assert server.http.get(ROLLOUT).json()["state"] == "rolling"
    worker(listen=other.url)
    assert ended(server)["state"] == "done"
    assert listed(server) == both and schedulers(server) == ["sjf", "sjf"]


@pytest.mark.slow
def test_a_worker_that_is_lost_in_its_turn_is_tried_again_after_the_rollout(
    worker: StartWorker, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its replica had failed for good, and was said to have ended twice."""
    caplog.set_level(logging.INFO)
    for module in (link, process):
        monkeypatch.setattr(module, "CONNECT_SECONDS", 2.0)
    one, other, server, both = in_the_first_turn(worker, connect)
    one.kill()
    report = ended(server)
    assert report["state"] == "undone" and "replica 0: the engine process of" in report["reason"]
    assert listed(server) == {"0": (one.url, "restarting"), "1": (other.url, "serving")}
    assert [record.getMessage() for record in caplog.records].count("replica 0 has ended") == 1
    worker(listen=one.url)
    eventually(lambda: listed(server) == both, 40)
    assert schedulers(server) == ["fcfs", "fcfs"]
    with both_answer_eight(server):
        pass


def test_a_rollout_that_stops_between_two_engines_of_a_worker_has_the_old_one_back(
    worker: StartWorker, connect: Connect
) -> None:
    one, other = worker(), worker()
    server = connect(one, other, admin_key=[])
    both = listed(server)
    begin(server, scheduler="sjf")
    eventually(lambda: {state for _, state in listed(server).values()} == {"starting", "serving"})
    server.post(ROLLOUT, action="pause")
    eventually(lambda: listed(server) == both, 20)
    assert "fcfs" in schedulers(server)
    server.post(ROLLOUT, action="resume")
    assert ended(server)["state"] == "done"
    assert listed(server) == both and schedulers(server) == ["sjf", "sjf"]


def test_a_fleet_that_is_closed_during_a_rollout_starts_no_engine(worker: StartWorker, keys: Path) -> None:
    """What brings the engine of before back was begun by the close, and held the worker from then on."""
    workers, launcher = [worker(), worker()], Static(str(keys))
    clients: list[ProcessClient] = []

    def launch(order: ReplicaOrder) -> ProcessClient:
        clients.append(ProcessClient(launcher=launcher, replica=order.name, place=order.place, restarts=3))
        return clients[-1]

    async def main() -> None:
        fleet = Fleet(launch, 0, RoundRobin(), workers=[each.url for each in workers])
        fleet.configure(EngineConfig(model="echo"))
        await fleet.start()
        fleet.roll_out({"max_num_seqs": 7}, 5.0)
        async with asyncio.timeout(20):
            while len(clients) < 3:
                await asyncio.sleep(0.005)
        await fleet.close()
        await asyncio.sleep(0.2)
        assert len(clients) == 3

    asyncio.run(main())
