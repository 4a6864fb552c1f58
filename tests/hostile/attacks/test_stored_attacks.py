"""Attacks on what goes on without a client: responses in the background, their events, batches and files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tiny_server import TinyServer, serving

from turnout.core import limits

pytestmark = pytest.mark.slow
RESPONSES, BATCHES, FILES = "/v1/responses", "/v1/batches", "/v1/files"
MIB = 2**20


@pytest.fixture(scope="module")
def storing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    folder = tmp_path_factory.mktemp("stored")
    files = ("--response-store", str(folder / "responses.db"), "--batch-dir", str(folder / "batches"))
    with serving("--kv-memory", "64MiB", *files) as server:
        yield server


@pytest.fixture
def server(storing: TinyServer) -> Iterator[TinyServer]:
    """Found unharmed when the test has ended."""
    yield storing
    storing.check()


def begun(server: TinyServer, tokens: int = 400, **fields: Any) -> httpx.Response:
    body = {"input": "def f(x):", "background": True, "max_output_tokens": tokens, **fields}
    return server.post(RESPONSES, body)


def state(server: TinyServer, id: str) -> str:
    return str(httpx.get(f"{server.url}{RESPONSES}/{id}", timeout=60).json()["status"])


def all_of(works: list[Callable[[], httpx.Response]]) -> list[httpx.Response]:
    """What comes of all of them, asked for at once."""
    with ThreadPoolExecutor(32) as pool:
        return list(pool.map(lambda work: work(), works))


def uploaded(server: TinyServer, lines: list[dict[str, Any]]) -> str:
    content = "\n".join(map(json.dumps, lines)).encode()
    form = {"file": ("in.jsonl", content)}
    return str(httpx.post(f"{server.url}{FILES}", files=form, data={"purpose": "batch"}).json()["id"])


def line(number: int, **body: Any) -> dict[str, Any]:
    asked = {"prompt": "a", "max_tokens": 100, "ignore_eos": True, **body}
    return {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": asked}


def batch_of(server: TinyServer, file: str) -> httpx.Response:
    asked = {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"}
    return server.post(BATCHES, asked)


# ------------------------------------------------------------------ responses in the background


def test_more_than_there_may_be_are_told_to_come_later(server: TinyServer) -> None:
    most = limits.BACKGROUND.whole
    answers = all_of([lambda: begun(server)] * (most + 60))
    refused = [answer for answer in answers if answer.status_code != 200]
    ids = [answer.json()["id"] for answer in answers if answer.status_code == 200]
    assert all(answer.status_code == 503 and answer.headers["Retry-After"] for answer in refused)
    assert server.answer() == server.tokens
    unfinished = [id for id in ids if state(server, id) == "in_progress"]
    assert len(unfinished) > len(ids) // 2, "another client's request does not wait for all of them"
    all_of([lambda id=id: server.post(f"{RESPONSES}/{id}/cancel", {}) for id in ids])  # type: ignore[misc]
    assert {state(server, id) for id in ids} <= {"cancelled", "completed", "incomplete"}
    assert begun(server, 1).status_code == 200, "there is room again"


def test_a_storm_of_cancels_and_deletes_ends_one_once(server: TinyServer) -> None:
    for _ in range(3):
        id = begun(server, stream=False).json()["id"]
        url = f"{server.url}{RESPONSES}/{id}"
        works: list[Callable[[], httpx.Response]] = [
            lambda url=url: httpx.post(f"{url}/cancel", timeout=60),  # type: ignore[misc]
            lambda url=url: httpx.delete(url, timeout=60),  # type: ignore[misc]
            lambda url=url: httpx.get(url, timeout=60),  # type: ignore[misc]
        ]
        answers = all_of(works * 10)
        assert {answer.status_code for answer in answers} <= {200, 404}, [a.text for a in answers]
        assert httpx.get(url).status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        "stream=maybe",
        "starting_after=1",
        *(f"stream=true&starting_after={n}" for n in ("-1", "1e3", "9" * 400, "٣")),
    ],
)
def test_events_after_no_event_are_refused(server: TinyServer, query: str) -> None:
    id = begun(server, 2).json()["id"]
    answer = httpx.get(f"{server.url}{RESPONSES}/{id}?{query}", timeout=60)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] in ("stream", "starting_after")


def test_a_hundred_readers_that_leave_hold_nothing(server: TinyServer) -> None:
    """Each reads a few bytes of one response's events, or none."""
    with httpx.stream("POST", f"{server.url}{RESPONSES}", json=asked(stream=True), timeout=60) as first:
        id = next(json.loads(text[6:]) for text in first.iter_lines() if text.startswith("data: "))[
            "response"
        ]["id"]
    memory, descriptors = server.memory(), server.process.num_fds()
    head = f"GET {RESPONSES}/{id}?stream=true HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    for number in range(100):
        with server.connect() as connection:
            connection.sendall(head)
            if number % 2:
                assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert server.answer() == server.tokens
    httpx.post(f"{server.url}{RESPONSES}/{id}/cancel", timeout=60)
    assert server.memory() < memory + 50 * MIB
    assert server.process.num_fds() < descriptors + 20


def asked(**fields: Any) -> dict[str, Any]:
    return {"input": "def f(x):", "background": True, "max_output_tokens": 400, **fields}


def test_one_that_goes_on_from_one_that_has_not_ended_is_refused(server: TinyServer) -> None:
    id = begun(server).json()["id"]
    answer = server.post(RESPONSES, {"input": "so?", "previous_response_id": id, "max_output_tokens": 1})
    assert answer.status_code in (200, 400, 409), answer.text  # it may have ended meanwhile
    assert server.post(f"{RESPONSES}/{id}/cancel", {}).status_code == 200


# ------------------------------------------------------------------ batches and files


def test_a_file_that_is_deleted_under_its_batch_fails_the_batch_or_waits(server: TinyServer) -> None:
    file = uploaded(server, [line(number) for number in range(40)])
    id = batch_of(server, file).json()["id"]
    answers = all_of([lambda: httpx.delete(f"{server.url}{FILES}/{file}", timeout=60)] * 10)
    assert {answer.status_code for answer in answers} <= {200, 400, 404, 409}, [a.text for a in answers]
    assert sum(answer.status_code == 200 for answer in answers) <= 1
    ended = until_ended(server, id)
    assert ended["status"] in ("completed", "failed", "cancelled")


def test_a_storm_of_cancels_ends_a_batch_once(server: TinyServer) -> None:
    id = batch_of(server, uploaded(server, [line(number) for number in range(200)])).json()["id"]
    answers = all_of([lambda: httpx.post(f"{server.url}{BATCHES}/{id}/cancel", timeout=60)] * 20)
    assert {answer.status_code for answer in answers} <= {200, 400, 409}, [a.text for a in answers]
    ended = until_ended(server, id)
    assert ended["status"] == "cancelled"
    counts = ended["request_counts"]
    assert counts["completed"] + counts["failed"] <= counts["total"] == 200


def until_ended(server: TinyServer, id: str) -> Any:
    waiting = threading.Event()
    for _ in range(2400):
        batch = httpx.get(f"{server.url}{BATCHES}/{id}", timeout=60).json()
        if batch["status"] in ("completed", "failed", "cancelled"):
            return batch
        waiting.wait(0.05)
    raise AssertionError(batch)


@pytest.mark.parametrize("path", [BATCHES, FILES])
@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=1e9", "limit=" + "9" * 5000, "limit=٣", "after=" + "x" * 5000, "order=up"],
)
def test_a_page_that_is_none_is_refused(server: TinyServer, path: str, query: str) -> None:
    answer = httpx.get(f"{server.url}{path}?{query}", timeout=60)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]["type"] != "server_error"


BODIES: list[object] = [
    {},
    {"input_file_id": "file-none", "endpoint": "/v1/completions", "completion_window": "24h"},
    {"input_file_id": "../responses.db", "endpoint": "/v1/completions", "completion_window": "24h"},
    {"input_file_id": "\0", "endpoint": "/v1/completions", "completion_window": "24h"},
    {"input_file_id": "x" * MIB, "endpoint": "/v1/completions", "completion_window": "24h"},
    {"input_file_id": ["file"], "endpoint": "/v1/completions", "completion_window": "24h"},
    {"input_file_id": "file", "endpoint": "/admin/replicas", "completion_window": "24h"},
    {"input_file_id": "file", "endpoint": "/v1/completions", "completion_window": "-1s"},
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_a_batch_of_nothing_is_refused(server: TinyServer, body: object) -> None:
    answer = server.post(BATCHES, body)
    assert answer.status_code in (400, 404), answer.text
    assert len(answer.text) < 5000
    listed = httpx.get(f"{server.url}{BATCHES}").json()["data"]
    assert all(batch["status"] != "in_progress" for batch in listed)
