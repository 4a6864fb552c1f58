"""Clients without a key, with another's, with too many requests, and pages of other sites."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tiny_server import PROMPT, TinyServer, read_all, serving

COMPLETIONS = "/v1/completions"
PAGE = "https://chat.example"
KEYS = """
- {key: own, name: own}
- {key: few, name: few, requests-in-flight: 1}
- {key: seldom, name: seldom, requests-per-minute: 2}
- {key: short, name: short, tokens-per-minute: 60}
"""


def error_of(response: httpx.Response) -> dict[str, str]:
    error: dict[str, str] = response.json()["error"]
    return error


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys.yaml"
    file.write_text(KEYS)
    return file


@pytest.fixture(scope="module")
def keyed(file: Path) -> Iterator[TinyServer]:
    flags = ("--kv-memory", "64MiB", "--api-key-file", str(file), "--allowed-origins", PAGE)
    with serving(*flags, key="own") as server:
        yield server
        server.check()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("headers", [{"Authorization": ""}, bearer("wrong"), bearer("ow"), bearer("own own")])
def test_without_a_key_nothing_is_read(keyed: TinyServer, headers: dict[str, str]) -> None:
    response = keyed.post(COMPLETIONS, PROMPT, headers=headers)
    assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")


def test_the_key_is_asked_for_before_the_body(keyed: TinyServer) -> None:
    """Of a body that is announced, not a byte has to come."""
    with keyed.connect() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 401 ")


def test_a_key_has_so_many_requests_at_once(keyed: TinyServer) -> None:
    def ask(_: int) -> httpx.Response:
        return keyed.post(
            COMPLETIONS, {**PROMPT, "max_tokens": 300, "ignore_eos": True}, headers=bearer("few")
        )

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses[0] == 200 and statuses[-1] == 429
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert error_of(refused)["type"] == "rate_limit_error" and refused.headers["Retry-After"] == "1"
    assert keyed.post(COMPLETIONS, PROMPT, headers=bearer("few")).status_code == 200


def test_a_key_has_so_many_requests_a_minute(keyed: TinyServer) -> None:
    """Questions that generate nothing are not counted."""
    statuses = [keyed.post(COMPLETIONS, PROMPT, headers=bearer("seldom")).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert httpx.get(f"{keyed.url}/v1/models", headers=bearer("seldom")).status_code == 200


def test_beyond_a_limit_nothing_is_read(keyed: TinyServer) -> None:
    """Of a body that is announced, not a byte has to come, so nothing is tokenized."""
    for _ in range(3):
        keyed.post(COMPLETIONS, PROMPT, headers=bearer("seldom"))
    with keyed.connect() as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer seldom\r\n"
            b"Content-Length: 30000000\r\n\r\n"
        )
        assert connection.recv(2**16).startswith(b"HTTP/1.1 429 ")


def test_named_keys_are_counted(keyed: TinyServer) -> None:
    def counted(what: str) -> float:
        lines = httpx.get(f"{keyed.url}/metrics").text.splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith(f"turnout:key_{what}")))

    names = 'requests_total{key="own"}', 'tokens_total{key="own"}'
    before = [counted(name) for name in names]
    assert keyed.answer() == keyed.tokens
    requests, tokens = (counted(name) - old for name, old in zip(names, before, strict=True))
    assert requests == 1 and tokens > PROMPT["max_tokens"]  # type: ignore[operator]
    proxied = httpx.get(f"{keyed.url}/metrics", headers={"X-Forwarded-For": "192.0.2.1"}).text
    assert "turnout:key_" not in proxied and "turnout:prompt_tokens_total" in proxied
    assert counted('refusals_total{key="own"}') == 0 < counted('refusals_total{key="seldom"}')


def test_a_key_file_that_changes_is_read_again(keyed: TinyServer, file: Path) -> None:
    def changed(text: str, new: str) -> None:
        file.write_text(text)
        deadline = time.monotonic() + 60
        while keyed.post(COMPLETIONS, PROMPT, headers=bearer(new)).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    changed(KEYS.replace("key: few", "key: many"), "many")
    assert keyed.post(COMPLETIONS, PROMPT, headers=bearer("few")).status_code == 401
    assert keyed.answer() == keyed.tokens
    assert "was read again: 4 keys, 1 new, 1 gone" in keyed.text()
    changed(KEYS, "few")  # which other tests use


@pytest.mark.parametrize("stream", [False, True])
def test_a_key_has_so_many_tokens_a_minute(keyed: TinyServer, stream: bool) -> None:
    body = {**PROMPT, "max_tokens": 80, "ignore_eos": True, "stream": stream}
    statuses = [keyed.post(COMPLETIONS, body, headers=bearer("short")).status_code for _ in range(2)]
    assert statuses[-1] == 429
    assert int(keyed.post(COMPLETIONS, body, headers=bearer("short")).headers["Retry-After"]) > 1


@pytest.mark.parametrize(
    ("media_type", "origin", "status"),
    [
        ("application/json", None, 200),
        ("application/json; charset=utf-8", None, 200),
        ("", None, 200),
        ("text/plain", None, 415),
        ("application/x-www-form-urlencoded", None, 415),
        ("multipart/form-data; boundary=x", None, 415),
        ("", "http://localhost:3000", 415),
        ("application/json", "http://localhost:3000", 200),
        ("application/json", "http://evil.example", 403),
        ("application/json", "null", 403),
    ],
)
def test_a_page_cannot_post_what_needs_no_permission(
    tiny: TinyServer, media_type: str, origin: str | None, status: int
) -> None:
    """Browsers send text and forms for any page; for JSON they ask the server first."""
    headers = {"Content-Type": media_type, **({"Origin": origin} if origin else {})}
    if not media_type:
        del headers["Content-Type"]
    response = httpx.post(
        tiny.url + COMPLETIONS, content=b'{"prompt": "a", "max_tokens": 1}', headers=headers, timeout=60
    )
    assert response.status_code == status
    if status == 415:
        assert "curl" in error_of(response)["message"]


def test_a_name_that_is_rebound_to_this_machine_is_not_answered(tiny: TinyServer) -> None:
    for path in ("/v1/models", "/metrics", "/version", "/v1/completions"):
        response = httpx.get(tiny.url + path, headers={"Host": "evil.example"})
        assert (response.status_code, error_of(response)["code"]) == (403, "host_not_allowed")
    assert httpx.get(f"{tiny.url}/health", headers={"Host": "probe.internal"}).status_code == 200
    assert tiny.send(b"GET /v1/models HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 403 ")


def test_allowed_origins_are_told_to_browsers(keyed: TinyServer) -> None:
    url = keyed.url + COMPLETIONS
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    preflight = httpx.options(url, headers={**asked, "Access-Control-Request-Headers": "authorization"})
    assert preflight.status_code == 200
    assert preflight.headers["Access-Control-Allow-Origin"] == PAGE
    assert "authorization" in preflight.headers["Access-Control-Allow-Headers"].lower()
    private = httpx.options(url, headers={**asked, "Access-Control-Request-Private-Network": "true"})
    assert private.status_code == 200
    assert private.headers["Access-Control-Allow-Private-Network"] == "true"
    answer = keyed.post(COMPLETIONS, PROMPT, headers={"Origin": PAGE})
    assert answer.status_code == 200 and answer.headers["Access-Control-Allow-Origin"] == PAGE
    refused = httpx.post(url, json=PROMPT, headers={"Origin": PAGE})
    assert refused.status_code == 401 and refused.headers["Access-Control-Allow-Origin"] == PAGE
    other = httpx.options(url, headers={**asked, "Origin": "https://evil.example"})
    assert other.status_code == 403 and "Access-Control-Allow-Origin" not in other.headers
    assert error_of(other)["code"] == "origin_not_allowed"


@pytest.mark.slow
def test_a_key_in_the_environment_shows_in_no_list_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_API_KEY", "unseen")
    with serving("--kv-memory", "64MiB", key="unseen") as server:
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        assert "unseen" not in " ".join(server.process.cmdline())
        with server.connect() as connection:
            connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
            assert read_all(connection).startswith(b"HTTP/1.1 401 ")
