"""OpenAI's client, in its strictest mode, has many requests answered by a file."""

from __future__ import annotations

import json
import time
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from asking import strict_client
from running_server import Start, eventually
from tiny_server import TinyServer, serving

KEYS = ("alice-key", "bob-key")
CHAT = "/v1/chat/completions"
ASKED = {
    "/v1/completions": {"prompt": "def add(a, b):", "max_tokens": 4, "temperature": 0},
    CHAT: {"messages": [{"role": "user", "content": "import os"}], "max_tokens": 4, "temperature": 0},
    "/v1/responses": {"input": "import os", "max_output_tokens": 4, "temperature": 0},
    "/v1/embeddings": {"input": ["import os", "def add(a, b):"], "encoding_format": "base64"},
    "/v1/rerank": {"query": "import os", "documents": ["import sys", "import os"]},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    flags = [flag for key in KEYS for flag in ("--api-key", key)]
    folder = str(tmp_path_factory.mktemp("batches"))
    with serving("--batch-dir", folder, "--pooling", "last", *flags, key=KEYS[0]) as server:
        yield server


@pytest.fixture
def client(server: TinyServer) -> Iterator[openai.OpenAI]:
    with strict_client(server.url, KEYS[0]) as client:
        yield client


def line(id: str, url: str = CHAT, /, **changes: Any) -> dict[str, Any]:
    return {"custom_id": id, "method": "POST", "url": url, "body": ASKED[url] | changes}


def begun(client: openai.OpenAI, lines: list[Any], url: Any = CHAT) -> Any:
    content = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines)
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h")


def ended(client: openai.OpenAI, id: str) -> Any:
    deadline = time.monotonic() + 60
    while (batch := client.batches.retrieve(id)).status not in (
        "completed",
        "failed",
        "cancelled",
        "expired",
    ):
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
    return batch


def lines_of(client: openai.OpenAI, file: str | None) -> list[Any]:
    return [json.loads(text) for text in client.files.content(file).text.splitlines()] if file else []


@pytest.mark.parametrize("url", ASKED)
def test_lines_are_answered_as_clients_are(client: openai.OpenAI, server: TinyServer, url: str) -> None:
    ids = [f"line {number}" for number in range(5)]
    batch = ended(client, begun(client, [line(id, url) for id in ids], url).id)
    assert batch.status == "completed" and batch.error_file_id is None
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (5, 5, 0)
    answers = lines_of(client, batch.output_file_id)
    assert [answer["custom_id"] for answer in answers] == ids
    alone = server.post(url, ASKED[url]).json()
    for answer in answers:
        assert answer["response"]["status_code"] == 200 and answer["error"] is None
        body = answer["response"]["body"]
        assert body.keys() == alone.keys() and text_of(body) == text_of(alone)


def text_of(body: Any) -> Any:
    if "output" in body:
        return [part["text"] for item in body["output"] for part in item["content"]]
    if "results" in body:
        return body["results"]
    if "data" in body:
        return body["data"]
    return [choice.get("text") or choice["message"]["content"] for choice in body["choices"]]


def test_a_line_that_is_refused_costs_no_other(client: openai.OpenAI) -> None:
    lines = [
        line("good"),
        line("model", model="gpt-5"),
        line("field", max_tokens=-1),
        line("stream", stream=True),
    ]
    batch = ended(client, begun(client, lines).id)
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("completed", 1, 3)
    refused = {each["custom_id"]: each["response"] for each in lines_of(client, batch.error_file_id)}
    assert {id: each["status_code"] for id, each in refused.items()} == {
        "model": 404,
        "field": 400,
        "stream": 400,
    }
    assert refused["model"]["body"]["error"]["code"] == "model_not_found"


def test_a_byte_order_mark_is_passed_over(client: openai.OpenAI) -> None:
    """As it is before the body of a request."""
    lines = [BOM_UTF8 + json.dumps(line("a")).encode(), line("b")]
    batch = ended(client, begun(client, lines).id)
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)


@pytest.mark.parametrize(
    ("lines", "code", "number"),
    [
        ([line("a"), b"{not json"], "invalid_line", 2),
        ([b"[1]"], "invalid_line", 1),
        ([b"\xff\xfe"], "invalid_line", 1),
        ([b"[" * 5000], "invalid_line", 1),
        ([line("a"), b"", line("a")], "duplicate_custom_id", 3),
        ([line("a", "/v1/completions")], "invalid_url", 1),
        ([{**line("a"), "url": "/admin/scheduler"}], "invalid_url", 1),
        ([{**line("a"), "method": "GET"}], "invalid_method", 1),
        ([b" \n"], "empty_file", None),
        ([BOM_UTF8], "empty_file", None),
        ([line("a"), BOM_UTF8 + json.dumps(line("b")).encode()], "invalid_line", 2),
    ],
)
def test_a_malformed_input_fails_the_batch(
    client: openai.OpenAI, lines: list[Any], code: str, number: int | None
) -> None:
    batch = ended(client, begun(client, lines).id)
    assert batch.status == "failed" and batch.output_file_id is None
    assert [(error.code, error.line) for error in batch.errors.data] == [(code, number)]


def test_a_batch_is_cancelled(client: openai.OpenAI) -> None:
    batch = begun(client, [line(str(number), max_tokens=1500) for number in range(200)])
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    cancelled = ended(client, batch.id)
    assert cancelled.status == "cancelled" and cancelled.request_counts.completed < 200
    assert len(lines_of(client, cancelled.output_file_id)) == cancelled.request_counts.completed
    assert client.batches.cancel(batch.id) == cancelled


def test_files_and_batches_are_listed(client: openai.OpenAI) -> None:
    batches = [ended(client, begun(client, [line("a")]).id) for _ in range(3)]
    listed = [each.id for each in client.batches.list(limit=2)]
    assert listed[:3] == [each.id for each in reversed(batches)]
    outputs = [each.id for each in client.files.list(purpose="batch_output", limit=2, order="asc")]
    assert {each.output_file_id for each in batches} <= set(outputs)
    file = client.files.retrieve(batches[0].input_file_id)
    assert file.purpose == "batch" and client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(file.id)


def test_a_key_sees_only_its_own(client: openai.OpenAI, server: TinyServer) -> None:
    batch = ended(client, begun(client, [line("a")]).id)
    with strict_client(server.url, KEYS[1]) as other:
        for call, id in (
            (other.files.retrieve, batch.input_file_id),
            (other.files.content, batch.output_file_id),
            (other.files.delete, batch.output_file_id),
            (other.batches.retrieve, batch.id),
            (other.batches.cancel, batch.id),
        ):
            with pytest.raises(openai.NotFoundError):
                call(id)
        assert not other.files.list().data and not other.batches.list().data
        with pytest.raises(openai.BadRequestError, match="no file"):
            other.batches.create(input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("endpoint", "/v1/tokenize"),
        ("completion_window", "1h"),
        ("input_file_id", "file-0"),
        ("input_file_id", "../turnout.db"),
    ],
)
def test_a_request_that_makes_no_batch_is_refused(client: openai.OpenAI, field: str, value: str) -> None:
    file = client.files.create(file=("in.jsonl", b"{}"), purpose="batch")
    asked: Any = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", field: value}
    with pytest.raises(openai.BadRequestError) as refused:
        client.batches.create(**asked)
    assert refused.value.param == field


@pytest.mark.parametrize(
    ("form", "status", "param"),
    [
        ({"files": {"file": b"{}"}}, 400, "purpose"),
        ({"files": {"file": b"{}"}, "data": {"purpose": "fine-tune"}}, 400, "purpose"),
        ({"files": {"other": b"{}"}, "data": {"purpose": "batch"}}, 400, "file"),
        ({"files": [("file", b"{}"), ("file", b"{}")], "data": {"purpose": "batch"}}, 400, "file"),
        ({"json": {"purpose": "batch"}}, 415, None),
        ({"content": b"--x", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}, 400, None),
        ({"content": b"--y", "headers": {"Content-Type": "multipart/form-data; boundary=x"}}, 400, None),
    ],
)
def test_a_form_that_is_none_is_refused(
    server: TinyServer, form: dict[str, Any], status: int, param: str | None
) -> None:
    headers = {**server.headers, **form.pop("headers", {})}
    refused = httpx.post(f"{server.url}/v1/files", headers=headers, **form)
    assert refused.status_code == status and refused.json()["error"]["param"] == param


def test_without_a_folder_there_are_none(start: Start) -> None:
    server = start()
    for path in ("/v1/files", "/v1/batches", "/v1/files/file-1", "/v1/batches/batch_1"):
        error = server.http.get(path)
        assert error.status_code == 404 and error.json()["error"]["code"] == "no_batches"
        assert "--batch-dir" in error.json()["error"]["message"]


def test_a_batch_that_waits_for_its_key_can_be_cancelled(start: Start, tmp_path: Path) -> None:
    """Its lines take what the key may have, which refuses the client's requests; to cancel does not count."""
    keys = tmp_path / "keys.yaml"
    keys.write_text("- {name: lim, key: kl, requests-per-minute: 5}\n- {name: free, key: kf}\n")
    server = start(batch_dir=str(tmp_path / "batches"), api_key_file=str(keys))
    completion = {"prompt": "ab", "max_tokens": 1}
    lines = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": completion}
        for number in range(12)
    ]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="kl", max_retries=0) as client:
        batch = begun(client, lines, "/v1/completions")
        eventually(lambda: client.batches.retrieve(batch.id).request_counts.completed == 3)
        with pytest.raises(openai.RateLimitError, match="5 requests a minute"):
            client.completions.create(model="echo", prompt="ab", max_tokens=1)
        headers = {"Authorization": "Bearer kf"}
        assert server.http.post("/v1/completions", json=completion, headers=headers).status_code == 200
        assert client.batches.cancel(batch.id).status == "cancelling"
        cancelled = ended(client, batch.id)
    assert cancelled.status == "cancelled" and cancelled.request_counts.completed == 3
