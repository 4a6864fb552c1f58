"""The access log: a line for each request, with what became of it and nothing of what it says."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import CHAT, COMPLETIONS
from running_server import RunningServer, Start, eventually
from server_process import ServerProcess

from turnout.core.logs import JsonLines
from turnout.server.http.records.record import RequestRecord

HEADER = "x-request-id"
SECRET = "the prompt is a secret"

Find = Callable[..., dict[str, Any]]


@pytest.fixture
def find() -> Iterator[Find]:
    """The line of a request by its id, once it is there, within seconds."""
    found: list[dict[str, Any]] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(self.format(record)))

    handler, logger = Keeping(), logging.getLogger("turnout.access")
    handler.setFormatter(JsonLines({}))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def find(id: str, seconds: float = 5) -> dict[str, Any]:
        eventually(lambda: any(line["request_id"] == id for line in found), seconds)
        (line,) = (line for line in found if line["request_id"] == id)
        return line

    yield find
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def ask(server: RunningServer, id: str, path: str = COMPLETIONS, **body: object) -> httpx.Response:
    return server.http.post(path, json=body, headers={HEADER: id})


def test_a_line_says_what_became_of_a_request(server: RunningServer, find: Find) -> None:
    ask(server, "whole", prompt="hello", max_tokens=3)
    line = find("whole")
    assert (line["method"], line["path"], line["status"]) == ("POST", COMPLETIONS, 200)
    assert line["model"] == server.http.get("/v1/models").json()["data"][0]["id"]
    assert line["completion_tokens"] == 3 and line["prompt_tokens"] > 0 and line["cached_tokens"] == 0
    assert 0 < line["ttft_seconds"] <= line["duration_seconds"] < 20
    assert line["ended"] == "length" and "key" not in line


def test_a_stream_s_line_comes_with_its_last_byte(server: RunningServer, find: Find) -> None:
    message = {"role": "user", "content": "hello"}
    ask(server, "stream", CHAT, messages=[message], max_tokens=4, stream=True, n=2)
    assert find("stream")["completion_tokens"] == 8
    assert find("stream")["ended"] == "length"


def test_a_client_that_leaves(server: RunningServer, find: Find) -> None:
    body = {"prompt": "a", "max_tokens": 500, "stream": True, "user": "slow"}
    with server.http.stream("POST", COMPLETIONS, json=body, headers={HEADER: "leaves"}) as response:
        next(response.iter_lines())
    line = find("leaves")
    assert (line["status"], line["ended"]) == (200, "abort") and line["completion_tokens"] < 500


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        (COMPLETIONS, {"prompt": {SECRET: SECRET}}, 400, "invalid_request_error"),
        (COMPLETIONS, {"prompt": "a", "model": SECRET}, 404, "model_not_found"),
        ("/nowhere", {}, 404, "invalid_request_error"),
        (COMPLETIONS, {"prompt": "a " * 2000}, 400, "context_length_exceeded"),
        (COMPLETIONS, {"prompt": "a", "logit_bias": {SECRET: 1}}, 400, "invalid_request_error"),
    ],
    ids=["no prompt", "no model", "no path", "too long", "no parameter"],
)
def test_refusals_are_named_by_a_word(
    server: RunningServer, find: Find, path: str, body: dict[str, object], status: int, error: str
) -> None:
    id = f"refused {path} {status} {len(str(body))}"
    assert ask(server, id, path, **body).status_code == status
    line = find(id)
    assert (line["status"], line["ended"]) == (status, error)
    assert SECRET not in str(line)


def test_a_name_that_is_refused_is_not_logged(server: RunningServer, find: Find) -> None:
    refused = server.http.get("/version", headers=[(HEADER.encode(), b"x" * 10_000)])
    line = find(refused.headers[HEADER])
    assert (line["status"], line["path"]) == (400, "/version") and "xxx" not in str(line)


def test_paths_are_quoted_in_the_message_and_queries_are_left_out(server: RunningServer, find: Find) -> None:
    server.http.get("/a%0AERROR%20b?key=secret", headers={HEADER: "path"})
    line = find("path")
    assert line["path"] == "/a\nERROR b" and line["message"] == "GET /a%0AERROR%20b 404"
    assert "secret" not in str(line)


def test_probes_are_logged_only_where_they_fail(start: Start, find: Find) -> None:
    server = start()
    for path in ("/health", "/metrics", "/version"):
        server.http.get(path, headers={HEADER: path})
    find("/version")
    for path in ("/health", "/metrics"):  # whose lines would stand before it
        with pytest.raises(AssertionError, match="never happened"):
            find(path, 0.05)
    server.http.get("/metrics", headers={HEADER: "elsewhere", "host": "evil.example"})
    assert find("elsewhere")["status"] == 403


def test_the_key_s_name(start: Start, find: Find, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("- {key: sk-alice-0123456789, name: alice}\n")
    server = start(api_key_file=str(keys))
    server.http.headers["authorization"] = "Bearer sk-alice-0123456789"
    ask(server, "hers", prompt="a", max_tokens=1)
    assert find("hers")["key"] == "alice"
    assert "0123456789" not in str(find("hers"))


def test_prompts_are_logged_only_where_asked_for(start: Start, find: Find) -> None:
    quiet, open_hearted = start(), start(log_prompts=True, max_log_len=5)
    ask(quiet, "quiet", prompt=SECRET, max_tokens=1)
    assert "prompts" not in find("quiet") and SECRET not in str(find("quiet"))
    ask(open_hearted, "open", prompt=["hello world", "hi"], max_tokens=1)
    assert find("open")["prompts"] == ["hello", "hi"]


def test_why_a_request_ended() -> None:
    record = RequestRecord("GET", "/", 0.0)
    assert not record.ended
    record.status = 499
    assert record.ended == "abort"
    record.error = "overloaded"
    assert record.ended == "overloaded"


SCRIPT = """
import sys
from turnout.config import EngineConfig, ServerConfig
from turnout.server.serve import serve

model, factory = sys.argv[1:]
server = ServerConfig(port=0, shutdown_timeout=0, log_format="json", log_level="debug", replicas=2)
sys.exit(serve(EngineConfig(model=model), server, factory=factory))
"""


def test_every_process_writes_json_and_names_the_request(folder: Path) -> None:
    """The server, its engines, uvicorn, an engine that dies; and no line has the prompt."""
    process = ServerProcess(SCRIPT, folder)
    try:
        eventually(lambda: any("Turnout serving" in line for line in process.output), 30)
        (url,) = (line["url"] for line in map(json.loads, list(process.output)) if "url" in line)
        with httpx.Client(base_url=url, timeout=30) as http:
            for id in ("first", "second"):
                body = {"prompt": SECRET, "max_tokens": 2}
                assert http.post(COMPLETIONS, json=body, headers={HEADER: id}).status_code == 200
            doomed = {"prompt": SECRET, "max_tokens": 2, "user": "failing"}
            assert http.post(COMPLETIONS, json=doomed, headers={HEADER: "doomed"}).status_code >= 500
    finally:
        process.popen.terminate()
        process.wait()
    lines = [json.loads(line) for line in process.output]
    of_first = {line["process"] for line in lines if line.get("request_id") == "first"}
    assert of_first == {"server", "engine"}
    assert {line["replica"] for line in lines if line["process"] == "engine"} == {"0", "1"}
    assert any("the echo engine failed" in line.get("exception", "") for line in lines)
    assert SECRET not in process.text()
