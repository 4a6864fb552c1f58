"""The header X-Request-Id: the client's name for a request comes back, and stands in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from asking import COMPLETIONS
from running_server import RunningServer

from turnout.core.logs import TextLines

HEADER = "x-request-id"


def test_the_clients_name_comes_back(server: RunningServer) -> None:
    for method, path, body in (
        ("GET", "/health", None),
        ("POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1}),
        ("POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1, "stream": True}),
        ("POST", COMPLETIONS, {"prompt": 5}),
        ("GET", "/nowhere", None),
    ):
        response = server.http.request(method, path, json=body, headers={HEADER: "mine/7 b"})
        assert response.headers.get_list(HEADER) == ["mine/7 b"], path


def test_a_request_without_a_name_gets_one(server: RunningServer) -> None:
    names = {server.http.get("/health").headers[HEADER] for _ in range(3)}
    assert len(names) == 3 and all(len(name) == 32 for name in names)


def test_a_response_says_how_long_it_took_to_begin(server: RunningServer) -> None:
    slow = {"prompt": "a", "max_tokens": 1, "user": "napping"}  # a step takes a second
    for response in (server.http.get("/health"), server.http.get("/nowhere")):
        assert response.headers["openai-processing-ms"].isdecimal()
    assert int(server.http.post(COMPLETIONS, json=slow).headers["openai-processing-ms"]) >= 1000


@pytest.mark.parametrize(
    "name", [b"", b"x" * 513, "ü".encode(), b"a\tb"], ids=["empty", "long", "utf-8", "tab"]
)
def test_what_is_no_name_is_refused(server: RunningServer, name: bytes) -> None:
    response = server.http.get("/health", headers=[(HEADER.encode(), name)])
    assert response.status_code == 400 and response.json()["error"]["param"] == HEADER
    assert len(response.headers[HEADER]) == 32


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What a server's log says, as `turnout serve` sets it up."""
    found: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    handler, root = Keeping(), logging.getLogger("turnout.server")
    handler.setFormatter(TextLines())
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield found
    root.setLevel(before)
    root.removeHandler(handler)


def test_the_log_names_the_request(server: RunningServer, lines: list[str]) -> None:
    for name in ("first", "second"):
        body = {"prompt": "a", "max_tokens": 1, f"unheard_of_{name}": 1}
        id = server.http.post(COMPLETIONS, json=body, headers={HEADER: name}).json()["id"]
        assert (
            f"DEBUG turnout.server.protocol.base: [{name}] ignored unknown fields: unheard_of_{name}" in lines
        )
        assert f"DEBUG turnout.server.api.respond: [{name}] generates for {id}-0" in lines
    logging.getLogger("turnout.server").warning("of no request")
    assert lines[-1] == "WARNING turnout.server: of no request"
