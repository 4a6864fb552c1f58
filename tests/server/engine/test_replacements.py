"""Engines that die while they load, that are killed from outside, or that a plugin ends in service."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from asking import COMPLETIONS
from echo_engine import STARTS
from running_server import RunningServer, Start, eventually

from turnout.core import limits
from turnout.core.errors import ConfigError
from turnout.core.interfaces.launcher import EngineOrder
from turnout.core.types.messages import SetScheduler
from turnout.plugins.launchers.exit_codes import OomKills
from turnout.plugins.launchers.local import Local, LocalEngine
from turnout.server.engine import next_engine

Answers = list[Future[httpx.Response]]


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says how each start of an engine goes."""
    file = tmp_path / "starts"
    monkeypatch.setenv(STARTS, str(file))
    return file


def end(server: RunningServer, how: signal.Signals) -> None:
    os.kill(server.client.pid, how)
    eventually(lambda: server.client.restarting or server.client.failure)


def ask(server: RunningServer, prompt: str = "ab", **body: object) -> httpx.Response:
    return httpx.post(
        f"{server.url}{COMPLETIONS}", json={"prompt": prompt, "max_tokens": 4, **body}, timeout=120
    )


# ------------------------------------------------------------------ deaths while loading


@pytest.mark.parametrize(
    "how",
    [
        "fails",
        pytest.param("dies", marks=pytest.mark.slow),
        pytest.param("is killed", marks=pytest.mark.slow),
        pytest.param("finds no room", marks=pytest.mark.slow),
        pytest.param("has no descriptor", marks=pytest.mark.slow),
    ],
)
def test_an_engine_that_dies_while_it_loads_is_replaced_too(start: Start, starts: Path, how: str) -> None:
    """It ended the server, at the first of three restarts."""
    starts.write_text("serves\n" + f"{how}\n" * 2 + "serves")
    server = start(engine_restarts=3)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, max_tokens=60, user="slow")
        eventually(lambda: server.work())
        end(server, signal.SIGSEGV)
        assert server.http.get("/health").json()["status"] == "restarting"
        assert answer.result(30).json()["choices"][0]["text"] == "ab" * 30
    assert server.client.restarts == 3
    assert server.http.get("/health").status_code == 200


@pytest.mark.parametrize("error", [ValueError, ConfigError])
def test_an_engine_that_cannot_be_told_its_configuration_is_started_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """It waited for its configuration for ever, and with it the server, once a launcher had failed."""
    server = start(engine_restarts=3)
    configure, told = LocalEngine.configure, list[int]()

    def fails_once(engine: LocalEngine, config: str) -> None:
        told.append(engine.pid)
        if len(told) == 1:
            raise error("the pipe is gone")
        configure(engine, config)

    monkeypatch.setattr(LocalEngine, "configure", fails_once)
    monkeypatch.setattr(next_engine, "RETRY_SECONDS", 0.01)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, max_tokens=60, user="slow")
        eventually(lambda: server.work())
        end(server, signal.SIGSEGV)
        assert answer.result(30).json()["choices"][0]["text"] == "ab" * 30
    assert told[1:] == [server.client.pid]
    eventually(lambda: not psutil.pid_exists(told[0]))


def test_an_engine_that_cannot_be_launched_for_now_is_launched_later(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the launcher raised a ConfigError, as of a file that was being replaced, no one tried again."""
    server = start(engine_restarts=3)
    launch, orders = Local.launch, list[EngineOrder]()

    def fails_once(launcher: Local, order: EngineOrder) -> LocalEngine:
        orders.append(order)
        if len(orders) == 1:
            raise ConfigError("keys.json: no such file")
        return launch(launcher, order)

    monkeypatch.setattr(Local, "launch", fails_once)
    monkeypatch.setattr(next_engine, "RETRY_SECONDS", 0.01)
    end(server, signal.SIGSEGV)
    eventually(lambda: len(orders) == 2 and not server.client.restarting, 15)
    assert ask(server).status_code == 200


def test_a_configuration_that_cannot_work_ends_the_server_at_once(start: Start, starts: Path) -> None:
    starts.write_text("serves\nis refused\nserves")
    server = start(engine_restarts=3)
    end(server, signal.SIGSEGV)
    eventually(lambda: server.client.failure, 15)
    assert server.client.failure == "the device is gone"
    assert server.client.restarts == 1


def test_restarts_that_fail_end_with_their_reason(start: Start, starts: Path) -> None:
    starts.write_text("serves\nfails\nfails\nfails\nfails")
    server = start(engine_restarts=2)
    end(server, signal.SIGSEGV)
    eventually(lambda: server.client.failure, 15)
    assert server.client.failure == "RuntimeError: the echo engine failed"
    assert ask(server).status_code == 503


def test_requests_do_not_wait_for_ever(start: Start, starts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESTART_WAIT", limits.Limit(most=0.5, unit="seconds", what="", answer=""))
    starts.write_text("serves\n" + "is killed\n" * 9)
    server = start()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, max_tokens=400, user="slow")
        eventually(lambda: server.work())
        end(server, signal.SIGKILL)
        assert answer.result(20).status_code == 503
    refused = ask(server)
    assert refused.status_code == 503 and refused.headers["Retry-After"]
    starts.write_text("serves")
    eventually(lambda: not server.client.restarting, 30)
    assert ask(server).status_code == 200


# ------------------------------------------------------------------ deaths from outside


@pytest.mark.parametrize(("kills", "requests"), [(2, 16), pytest.param(5, 64, marks=pytest.mark.slow)])
def test_kills_lose_no_request(start: Start, kills: int, requests: int) -> None:
    """Five lost 3 of 64, always, and the fourth ended the server."""
    server = start(engine={"max_num_seqs": 64})
    with ThreadPoolExecutor(64) as pool:
        answers: Answers = [
            pool.submit(ask, server, chr(48 + i), max_tokens=100, user="slow") for i in range(requests)
        ]
        for _ in range(kills):
            eventually(lambda: not server.client.restarting and server.work() > 0, 30)
            end(server, signal.SIGKILL)
        texts = [answer.result(60).json()["choices"][0]["text"] for answer in answers]
    assert texts == [chr(48 + i) * 100 for i in range(requests)]
    assert server.client.restarts == kills


def test_kills_of_one_request_are_not_its_fault(start: Start) -> None:
    server = start(engine_restarts=1)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, server, max_tokens=100, user="slow")
        for how in (signal.SIGKILL, signal.SIGUSR1, signal.SIGKILL):
            eventually(lambda: not server.client.restarting and server.work() > 0, 30)
            end(server, how)
        assert answer.result(60).json()["choices"][0]["text"] == "ab" * 50
    assert server.client.restarts == 3


def test_a_kill_for_memory_is_a_fault(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start(engine_restarts=1)
    monkeypatch.setattr(OomKills, "happened", lambda self: True)
    end(server, signal.SIGKILL)
    eventually(lambda: not server.client.restarting, 15)
    end(server, signal.SIGKILL)
    eventually(lambda: server.client.failure)
    assert "was ended by SIGKILL, as memory was short" in str(server.client.failure)


# ------------------------------------------------------------------ plugins in service


def test_what_a_kv_backend_does_to_one_request_costs_no_other(start: Start) -> None:
    """23 of 24 requests got 503, and the server ended."""
    server = start(engine={"kv": "broken"})
    with ThreadPoolExecutor(8) as pool:
        answers: Answers = [pool.submit(ask, server, f"{i}", max_tokens=60, user="slow") for i in range(5)]
        eventually(lambda: server.work())
        lost = pool.submit(ask, server, "x", user="unreserved").result(60)
        texts = [answer.result(60).json()["choices"][0]["text"] for answer in answers]
    assert lost.status_code == 500
    message = lost.json()["error"]["message"]
    assert "kv 'broken' of echo_policies: reserve failed: RuntimeError: the books are lost" in message
    assert texts == [str(i) * 60 for i in range(5)]
    assert ask(server).status_code == 200


@pytest.mark.slow
def test_a_kv_backend_that_never_works_ends_the_server_with_its_name(start: Start) -> None:
    server = start(engine={"kv": "broken:always=true"}, engine_restarts=2)
    with ThreadPoolExecutor(6) as pool:
        answers: Answers = [pool.submit(ask, server, f"{i}") for i in range(6)]
        assert {answer.result(60).status_code for answer in answers} <= {500, 503}
    eventually(lambda: server.client.failure, 30)
    assert "kv 'broken' of echo_policies: reserve failed" in str(server.client.failure)


def test_policies_that_fail_whenever_they_are_called_cost_nothing(start: Start) -> None:
    server = start(engine={"scheduler": "raising", "kv_eviction": "broken"})
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: ask(server, f"{i}" * 20, max_tokens=40), range(8)))
    assert [answer.json()["choices"][0]["text"] for answer in answers] == [str(i) * 40 for i in range(8)]
    assert server.client.restarts == 0


def test_what_an_engine_does_not_repeat_of_admin_commands_is_told(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """As that of a worker which lacks a plugin: it served by another policy, and the log was silent."""
    server = start(engine_restarts=3)
    server.fleet.generation.journal.note(SetScheduler("of-a-plugin"))
    end(server, signal.SIGKILL)
    assert ask(server).status_code == 200
    eventually(lambda: "what was commanded before: no scheduler is called 'of-a-plugin'" in caplog.text)
