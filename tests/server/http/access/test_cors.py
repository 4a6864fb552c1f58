"""CORS: which pages read what a server answers."""

from __future__ import annotations

import httpx
import pytest
from running_server import RunningServer, Start

HERE = "http://localhost:3000"
MODELS = "/v1/models"


def preflight(server: RunningServer, origin: str, path: str = "/v1/chat/completions") -> httpx.Response:
    return server.http.options(path, headers={"Origin": origin, "Access-Control-Request-Method": "POST"})


def reader(answer: httpx.Response) -> str | None:
    return answer.headers.get("Access-Control-Allow-Origin")


@pytest.mark.parametrize("origin", [HERE, "http://127.0.0.1:5173", "https://[::1]:1", "http://a.localhost"])
def test_without_a_key_pages_of_this_machine_read_answers(server: RunningServer, origin: str) -> None:
    """They were served, but browsers kept the answers from them, and their preflights got 405."""
    asked = preflight(server, origin)
    assert asked.status_code == 200 and reader(asked) == origin
    answer = server.http.get(MODELS, headers={"Origin": origin})
    assert answer.status_code == 200 and reader(answer) == origin


def test_they_do_not_read_what_tells_of_other_clients(server: RunningServer) -> None:
    for path in ("/admin/live", "/admin/kv", "/start_profile"):
        assert reader(preflight(server, HERE, path)) is None
    assert reader(server.http.get("/admin/kv", headers={"Origin": HERE})) is None


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "null",
        "tauri://localhost",
    ],
)
def test_no_other_page_reads(server: RunningServer, origin: str) -> None:
    asked = preflight(server, origin)
    assert asked.status_code == 403 and reader(asked) is None
    assert asked.json()["error"]["code"] == "origin_not_allowed"
    assert "--allowed-origins" in asked.json()["error"]["message"]
    assert reader(server.http.get(MODELS, headers={"Origin": origin})) is None


def test_with_a_key_pages_of_this_machine_need_to_be_allowed(start: Start) -> None:
    key = {"Authorization": "Bearer secret"}
    keyed = start(api_key="secret")
    assert preflight(keyed, HERE).status_code == 401
    assert reader(keyed.http.get(MODELS, headers={**key, "Origin": HERE})) is None
    allowed = start(api_key="secret", allowed_origins="https://chat.example/")
    assert preflight(allowed, HERE).status_code == 403
    assert reader(allowed.http.get(MODELS, headers={**key, "Origin": HERE})) is None
    page = "https://chat.example"
    assert reader(preflight(allowed, page)) == page == reader(preflight(allowed, page, "/admin/kv"))


def test_an_unknown_method_is_refused_in_json(server: RunningServer) -> None:
    asked = {"Origin": HERE, "Access-Control-Request-Method": "BREW"}
    refused = server.http.options(MODELS, headers=asked)
    assert refused.status_code == 400 and "BREW" in refused.json()["error"]["message"]
