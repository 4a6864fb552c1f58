"""Clients that mean harm to what the server keeps: the disk, other clients' files, and those who wait."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from tiny_server import TinyServer, serving

from turnout.core import limits
from turnout.server.storage.response_store import Bounds, ChainTooLong, ResponseStore, StoredResponse

MIB = 2**20
RESPONSES = 10_000
MEGABYTE = "x" * MIB
SAID = {"type": "message", "role": "user", "content": "x"}
TOOL = {"type": "function", "name": "f", "description": MEGABYTE, "parameters": {}}
SECONDS = 5.0
"""In which others are answered beside any attack; most take milliseconds."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def storing(folder: Path) -> Iterator[TinyServer]:
    files = ("--response-store", str(folder / "responses.db"), "--batch-dir", str(folder / "batches"))
    with serving("--kv-memory", "64MiB", "--max-body-size", "8MiB", *files) as server:
        yield server


@pytest.fixture
def server(storing: TinyServer) -> Iterator[TinyServer]:
    """Found unharmed when the test has ended."""
    yield storing
    storing.check()


def slowest_answer(server: TinyServer, attack: Callable[[], object]) -> float:
    """Seconds of the slowest answer to another client during an attack."""
    worst, over = 0.0, threading.Event()

    def other() -> None:
        nonlocal worst
        while not over.is_set():
            worst = max(worst, server.health())
            time.sleep(0.02)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        attack()
    finally:
        over.set()
        thread.join()
    return worst


def upload(server: TinyServer, content: Any, name: str = "in.jsonl") -> httpx.Response:
    form = {"file": (name, content)}
    return httpx.post(f"{server.url}/v1/files", files=form, data={"purpose": "batch"}, timeout=120)


def ended(server: TinyServer, file: str) -> Any:
    """A batch of a file, when it has ended."""
    asked = {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"}
    id = server.post("/v1/batches", asked).json()["id"]
    deadline = time.monotonic() + 120
    while True:
        batch = httpx.get(f"{server.url}/v1/batches/{id}").json()
        if batch["status"] in ("completed", "failed"):
            return batch
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)


# ------------------------------------------------------------------ responses


@pytest.mark.slow
def test_ten_thousand_responses_stay_within_their_bytes(tmp_path: Path) -> None:
    file, most = tmp_path / "responses.db", 20 * MIB

    async def fill(store: ResponseStore) -> None:
        for number in range(RESPONSES):
            text = b"x" * (4096 if number % 100 else 64 * 1024)
            body = b'{"id": "%d", "output": [{"id": "msg_%d", "text": "%s"}]}' % (number, number, text)
            before = str(number - 1) if number % 50 else None
            await store.put(StoredResponse(str(number), "mallory", before, "completed", body, b"[]"))

    with closing(ResponseStore(file, Bounds(RESPONSES, most, 30))) as store:
        asyncio.run(fill(store))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * most
        assert asyncio.run(store.get(str(RESPONSES - 1), "mallory")) is not None
        assert asyncio.run(store.get("0", "mallory")) is None


WAYS_TO_GROW = {
    "a prompt": ({"input": "x" * 400}, "input"),
    "tools": ({"tools": [TOOL], "tool_choice": "none"}, "previous_response_id"),
    "a format": ({"text": {"format": {"type": "text", "x": MEGABYTE}}}, "previous_response_id"),
    "names": ({"input": [SAID | {"id": MEGABYTE}]}, "previous_response_id"),
    "reasons": ({"input": [SAID, {"type": "reasoning", "summary": [MEGABYTE]}]}, "previous_response_id"),
}
"""What a request adds to its conversation, and the parameter by which a later one is refused: a prompt is
bounded by the context, and what is no part of the prompt by --max-body-size."""


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=[] if way in ("a prompt", "tools") else [pytest.mark.slow])
        for way in WAYS_TO_GROW
    ],
)
def test_a_conversation_without_an_end_is_refused(server: TinyServer, way: str) -> None:
    added, parameter = WAYS_TO_GROW[way]
    asked = {"input": "x", "max_output_tokens": 1, **added}
    response = server.post("/v1/responses", asked)
    for _ in range(10):  # 10 MiB in all, more than a body may have, or more tokens than the context
        assert response.status_code == 200, response.text
        response = server.post("/v1/responses", asked | {"previous_response_id": response.json()["id"]})
        if response.status_code != 200:
            break
    assert response.status_code == 400
    assert response.json()["error"]["param"] == parameter


def test_metadata_cannot_make_a_conversation_large(server: TinyServer) -> None:
    for notes in ({"note": MEGABYTE}, {str(number): "x" for number in range(17)}, {MEGABYTE: "x"}):
        asked = {"input": "x", "max_output_tokens": 1, "metadata": notes}
        response = server.post("/v1/responses", asked)
        assert response.status_code == 400
        assert response.json()["error"]["param"].startswith("metadata")


@pytest.mark.parametrize("turns", [1, 50])
def test_a_conversation_in_a_circle_is_refused(tmp_path: Path, turns: int) -> None:
    """No request can make one: a damaged or foreign file could hold it."""
    with closing(ResponseStore(tmp_path / "responses.db", Bounds(100, 20 * MIB, 30))) as store:
        for number in range(turns):
            before = str((number - 1) % turns)
            asyncio.run(store.put(StoredResponse(str(number), "mallory", before, "completed", b"{}", b"[]")))
        with pytest.raises(ChainTooLong):
            asyncio.run(store.conversation("0", "mallory", 8 * MIB))


@pytest.mark.parametrize("id", ["%2e%2e%2fbatches", "x" * 5000, "'; DROP TABLE responses; --", "\x00", "%00"])
def test_an_id_is_only_a_name(server: TinyServer, id: str) -> None:
    kept = server.post("/v1/responses", {"input": "x", "max_output_tokens": 1}).json()["id"]
    for path in ("responses", "files", "batches"):
        try:
            response = httpx.get(f"{server.url}/v1/{path}/{id}")
        except httpx.InvalidURL:
            continue
        assert response.status_code == 404
    asked = {"input": "x", "max_output_tokens": 1, "previous_response_id": id}
    assert server.post("/v1/responses", asked).status_code == 404
    assert httpx.get(f"{server.url}/v1/responses/{kept}").status_code == 200


# ------------------------------------------------------------------ files


@pytest.mark.parametrize(
    "name",
    [
        "../../../etc/passwd",
        "..\\..\\windows",
        "/etc/cron.d/x",
        "turnout.db",
        "a/../turnout.db",
        "x" * 10_000,
        "a\r\nX-Injected: 1",
        "\x1b[2J",
        ".",
        "..",
    ],
)
def test_a_name_leads_nowhere(server: TinyServer, folder: Path, name: str) -> None:
    before = {path for path in folder.parent.rglob("*") if not path.name.startswith("file-")}
    response = upload(server, b"{}", name)
    assert response.status_code in (200, 400, 413)
    after = {path for path in folder.parent.rglob("*") if not path.name.startswith("file-")}
    assert after <= before | {folder / "batches" / "turnout.db-wal"}
    if response.status_code == 200:
        shown = response.json()["filename"]
        assert shown.isprintable() and "/" not in shown and "\\" not in shown and len(shown) <= 255
        content = httpx.get(f"{server.url}/v1/files/{response.json()['id']}/content")
        assert content.content == b"{}" and "x-injected" not in content.headers


def part(headers: bytes, content: bytes = b"") -> bytes:
    return b"--b\r\n" + headers + b"\r\n\r\n" + content + b"\r\n"


FIELD = b'Content-Disposition: form-data; name="purpose"'
FILE = b'Content-Disposition: form-data; name="file"; filename="f"'
BOMBS = {
    "parts": part(FIELD, b"batch") * 100_000,
    "headers": part(b"\r\n".join(b"X-%d: 1" % number for number in range(100_000)), b""),
    "a header": part(b"X: " + b"x" * 4_000_000, b""),
    "a field": part(FIELD, b"x" * 4_000_000),
    "files": part(FILE, b"{}") * 1000,
    "no end": part(FILE, b"x" * 1_000_000),
    "no boundary": b"x" * 4_000_000,
    "dashes": b"--b" * 300_000,
    "line breaks": b"\r\n" * 1_000_000,
    "boundaries": b"--b\r\n" * 200_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_form_that_is_a_bomb_is_refused_in_a_moment(server: TinyServer, folder: Path, bomb: str) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    memory, files = server.memory(), sorted((folder / "batches").iterdir())
    answers: list[int] = []

    def attack() -> None:
        response = httpx.post(f"{server.url}/v1/files", content=BOMBS[bomb], headers=headers, timeout=60)
        answers.append(response.status_code)

    assert slowest_answer(server, attack) < SECONDS
    assert answers[0] in (400, 413)
    assert server.memory() < memory + 100 * MIB
    assert sorted((folder / "batches").iterdir()) == files, "nothing is left of it"


def test_a_file_larger_than_the_most_is_refused_before_it_is_sent(server: TinyServer) -> None:
    size = limits.FILE.whole + MIB
    head = (
        "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {size}\r\n\r\n"
    )
    assert b" 413 " in server.send(head.encode()).splitlines()[0]


# ------------------------------------------------------------------ batches


@pytest.mark.slow
def test_a_million_lines_are_refused_while_others_are_served(server: TinyServer) -> None:
    body = {"prompt": "x", "max_tokens": 1}
    text = json.dumps({"custom_id": "NUMBER", "method": "POST", "url": "/v1/completions", "body": body})
    lines = "\n".join(text.replace("NUMBER", str(number)) for number in range(1_000_000)).encode()
    found: list[Any] = []

    def attack() -> None:
        file = upload(server, lines).json()["id"]
        found.append(ended(server, file))
        assert httpx.delete(f"{server.url}/v1/files/{file}").status_code == 200

    memory = server.memory()
    assert slowest_answer(server, attack) < SECONDS
    assert found[0]["status"] == "failed" and found[0]["errors"]["data"][0]["code"] == "too_many_lines"
    assert server.memory() < memory + 200 * MIB


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b'{"custom_id": "' + b"x" * 5_000_000 + b'"}', "line_too_long"),
        (b"[" * 1_000_000, "invalid_line"),
        (b'{"a":' * 500_000, "invalid_line"),
        (b"\x00" * 1_000_000, "invalid_line"),
        (b"x\n" * 1_000_000, "invalid_line"),
    ],
)
def test_lines_that_are_none_fail_their_batch_alone(server: TinyServer, content: bytes, code: str) -> None:
    found: list[Any] = []

    def attack() -> None:
        found.append(ended(server, upload(server, content).json()["id"]))

    assert slowest_answer(server, attack) < SECONDS
    assert found[0]["status"] == "failed"
    errors = found[0]["errors"]["data"]
    assert {error["code"] for error in errors} == {code} and len(errors) <= 100
    assert all(len(error["message"]) <= 500 for error in errors)


def test_a_line_cannot_reach_other_endpoints(server: TinyServer) -> None:
    lines = [
        {"custom_id": "a", "method": "POST", "url": url, "body": {"name": "sjf"}}
        for url in ("/admin/scheduler", "http://169.254.169.254/", "/v1/completions/../../admin/ab")
    ]
    file = upload(server, "\n".join(map(json.dumps, lines)).encode()).json()["id"]
    assert ended(server, file)["status"] == "failed"
