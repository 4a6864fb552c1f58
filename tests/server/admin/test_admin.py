"""Changing the policy of a running server: who may, what is refused, and that no stream notices."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import httpx
import pytest
from asking import COMPLETIONS, events
from running_server import RunningServer, Start, eventually, running

from turnout.config import EngineConfig, ServerConfig
from turnout.server.app import create_app
from turnout.text.tokenizer import Tokenizer

SCHEDULER = "/admin/scheduler"


@pytest.fixture(scope="module")
def busy(tokenizer: Tokenizer) -> Iterator[RunningServer]:
    """A server where few can run at once."""
    with running(tokenizer, EngineConfig(model="echo", max_num_seqs=4), ServerConfig()) as server:
        yield server


def change(server: RunningServer, name: str, **options: object) -> dict[str, Any]:
    response = server.post(SCHEDULER, name=name, options=options)
    assert response.status_code == 200, response.text
    return response.json()


# ------------------------------------------------------------------ changing it


def test_the_policy_changes_and_says_so(busy: RunningServer) -> None:
    change(busy, "fcfs")
    shown = busy.http.get(SCHEDULER).json()
    assert shown.keys() == {"scheduler", "policy_faults", "preemptions", "running", "waiting"}
    assert shown["scheduler"] == "fcfs"
    assert change(busy, "shuffling", width=2, reverse=True)["scheduler"] == "shuffling:width=2,reverse=true"
    assert busy.http.get(SCHEDULER).json()["scheduler"] == "shuffling:width=2,reverse=true"
    assert busy.post(SCHEDULER, name="fcfs").json()["scheduler"] == "fcfs"


def test_the_plugins_are_those_of_the_engine(busy: RunningServer) -> None:
    listed = busy.http.get("/admin/plugins").json()["plugins"]
    by_name = {(plugin["kind"], plugin["name"]): plugin for plugin in listed}
    assert by_name["scheduler", "fcfs"]["distribution"] == "turnout"
    assert by_name["scheduler", "shuffling"]["state"] == "ok", "known to the engine's process alone"
    assert all(plugin["error"] == "" for plugin in listed if plugin["state"] == "ok")


def test_nothing_is_lost_when_the_policy_changes_under_load(busy: RunningServer) -> None:
    """32 streams, 4 places, and policies that evict and leave out, changed all the time."""
    bodies = [
        {"prompt": f"stream {number}: 你好 ", "max_tokens": 16, "priority": number % 5, "n": 1 + number % 2}
        for number in range(32)
    ]
    change(busy, "fcfs")
    before = busy.http.get(SCHEDULER).json()["preemptions"]
    expected = [choices(events(busy, COMPLETIONS, **body)) for body in bodies]
    few, most_urgent_last = {"width": 3}, {"width": 1, "reverse": True}
    policies = cycle([("shuffling", most_urgent_last), ("shuffling", few), ("fcfs", {})])
    switches = 0
    with ThreadPoolExecutor(32) as pool:
        streams = [pool.submit(events, busy, COMPLETIONS, **body, user="brisk") for body in bodies]
        while not all(stream.done() for stream in streams):
            name, options = next(policies)
            change(busy, name, **options)
            switches += 1
    assert [choices(stream.result()) for stream in streams] == expected
    assert switches > 3
    assert change(busy, "fcfs")["preemptions"] > before
    eventually(lambda: busy.work() == 0)


def choices(stream: list[Any]) -> dict[int, str]:
    """The text of each, and how it ended."""
    texts: dict[int, str] = {}
    for event in stream:
        for choice in event["choices"]:
            end = choice["finish_reason"] or ""
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"] + end
    return texts


def test_who_waits_is_ranked_anew(busy: RunningServer) -> None:
    change(busy, "fcfs")
    with ThreadPoolExecutor(10) as pool:
        running = pool.submit(busy.post, COMPLETIONS, prompt="a", n=4, max_tokens=100, user="slow")
        eventually(lambda: busy.http.get(SCHEDULER).json()["running"] == 1)
        urgent = pool.submit(busy.post, COMPLETIONS, prompt="b", priority=-1, max_tokens=2)
        eventually(lambda: busy.http.get(SCHEDULER).json()["waiting"] == 1)
        assert not running.done() and not urgent.done()
        change(busy, "shuffling")
        assert urgent.result(5).json()["choices"][0]["text"] == "bb"
        assert not running.done()
        change(busy, "fcfs")
        assert {choice["text"] for choice in running.result().json()["choices"]} == {"a" * 100}


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({}, "name", "this field is required"),
        ({"name": 5}, "name", "valid string"),
        ({"name": "fcfz"}, None, "did you mean 'fcfs'?"),
        ({"name": "fcfs:aging=2"}, None, "is not a policy's name; options are given apart from it"),
        ({"name": "fcfs", "options": {"aging": 2}}, None, "scheduler 'fcfs': unknown option 'aging'"),
        ({"name": "shuffling", "options": {"width": "many"}}, None, "width: "),
        ({"name": "shuffling", "options": {"width": 0}}, None, "width must be at least 1"),
        ({"name": "shuffling", "options": {"width": "'\""}}, None, "both kinds of quotes"),
        ({"name": "shuffling", "options": {"width=2,reverse": "true"}}, None, "pattern"),
        ({"name": "shuffling", "options": {"name": "fcfs"}}, "options", "'name' is not an option"),
        ({"name": "shuffling", "options": ["width"]}, "options", "valid dict"),
        ({"name": "fcfs", "option": {}}, "option", "not permitted"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(
    busy: RunningServer, body: dict[str, object], param: str | None, message: str
) -> None:
    change(busy, "shuffling", width=2)
    response = busy.post(SCHEDULER, **body)
    assert response.status_code == 400
    found = response.json()["error"]
    assert message in found["message"] and found["type"] == "invalid_request_error"
    if param is not None:
        assert found["param"] == param
    assert busy.http.get(SCHEDULER).json()["scheduler"] == "shuffling:width=2"


def test_a_command_that_breaks_harms_no_request(busy: RunningServer) -> None:
    response = busy.post(SCHEDULER, name="broken")
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "RuntimeError: the command failed"
    assert busy.post(COMPLETIONS, prompt="a").status_code == 200


def test_an_engine_that_is_gone_cannot_be_changed(start: Start) -> None:
    server = start(engine_restarts=0)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(server.post, COMPLETIONS, prompt="a", max_tokens=1, user="stuck")
        eventually(lambda: server.client.streams)
        waiting = pool.submit(server.post, SCHEDULER, name="fcfs")
        eventually(lambda: server.client._replies)
        os.kill(server.client.pid, signal.SIGKILL)
        response = waiting.result(5)
    assert response.status_code == 503 and response.json()["error"]["code"] == "engine_gone"
    assert server.http.get(SCHEDULER).status_code == 503


def test_an_engine_that_is_busy_too_long(busy: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.server.engine.replies.ADMIN_TIMEOUT_SECONDS", 0.0)
    response = busy.http.get(SCHEDULER)
    assert response.status_code == 504 and response.json()["error"]["code"] == "engine_busy"
    assert not busy.client._replies


# ------------------------------------------------------------------ who may


def test_the_admin_key(start: Start) -> None:
    server = start(api_key="for all", admin_key="för few")

    def status(path: str, key: str | None) -> int:
        headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
        return server.http.get(path, headers=headers).status_code

    for key in (None, "for all", "för fe", "x"):
        assert status(SCHEDULER, key) == 401
        assert status("/admin/nothing", key) == 401
    assert status(SCHEDULER, "för few") == 200
    assert status("/admin/nothing", "för few") == 404
    assert (status("/v1/models", "for all"), status("/v1/models", "för few")) == (200, 401)
    assert server.post(SCHEDULER, name="fcfs").json()["error"]["code"] == "invalid_admin_key"


def test_without_an_admin_key_the_api_key_is_still_asked_for(start: Start) -> None:
    server = start(api_key="secret")
    assert server.http.get(SCHEDULER).json()["error"]["code"] == "invalid_api_key"
    assert server.http.get(SCHEDULER, headers={"Authorization": "Bearer secret"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "192.0.2.7"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=192.0.2.7"},
    ],
)
def test_proxies_are_not_this_machine(busy: RunningServer, headers: dict[str, str]) -> None:
    response = busy.http.post(SCHEDULER, json={"name": "fcfs"}, headers=headers)
    assert response.status_code == 403 and response.json()["error"]["code"] == "admin_forbidden"
    assert busy.http.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": "https://example.com"}, "origin_not_allowed"),
        ({"Origin": "null"}, "origin_not_allowed"),
        ({"Origin": "http://["}, "origin_not_allowed"),
        ({"Host": "example.com:8000"}, "host_not_allowed"),
        ({"Host": "["}, "host_not_allowed"),
    ],
)
def test_pages_from_elsewhere_are_not_this_machine(
    busy: RunningServer, headers: dict[str, str], code: str
) -> None:
    """A page in the admin's browser can send requests to 127.0.0.1, and DNS can lead any name there."""
    for response in (
        busy.http.post(SCHEDULER, json={"name": "fcfs"}, headers=headers),
        busy.http.get("/v1/models", headers=headers),
    ):
        assert response.status_code == 403 and response.json()["error"]["code"] == code


def test_this_machine_has_several_names(busy: RunningServer) -> None:
    port = busy.url.rpartition(":")[2]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "LOCALHOST"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert busy.http.get(SCHEDULER, headers=headers).status_code == 200


@pytest.mark.parametrize(("address", "status"), [("192.0.2.7", 403), ("::1", 404), ("127.0.0.9", 404)])
def test_only_loopback_addresses_are_this_machine(address: str, status: int) -> None:
    app = create_app(None, ServerConfig())  # type: ignore[arg-type]  # nothing is asked of either

    async def ask() -> int:
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return (await http.get("/admin/nothing")).status_code

    assert asyncio.run(ask()) == status
