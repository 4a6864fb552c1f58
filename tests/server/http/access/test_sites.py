"""Hosts and pages: which a server answers."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from turnout.config import ServerConfig
from turnout.server.http.access.sites import Sites

EVIL = "http://evil.example"


def code(config: ServerConfig, *, keyless: bool = True, **headers: str) -> str | None:
    refusal = Sites(config, keyless=keyless).refusal(Headers(headers))
    return refusal.code if refusal else None


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:1", "[::1]:8000", "a.localhost"],
)
def test_this_machine_has_several_names(host: str) -> None:
    assert code(ServerConfig(), host=host) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[", "10.0.0.1"],
)
def test_another_name_may_be_rebound_to_it(host: str) -> None:
    assert code(ServerConfig(), host=host) == "host_not_allowed"
    assert code(ServerConfig(), keyless=False, host=host) is None
    assert code(ServerConfig(host="0.0.0.0"), host=host) is None


def test_allowed_hosts_are_known() -> None:
    config = ServerConfig(allowed_hosts="api.example, *.Internal")
    for host in ("api.example:80", "API.example", "a.b.internal", "localhost"):
        assert code(config, host=host) is None
    for host in ("example", "xapi.example", "internal", "evil.example"):
        assert code(config, host=host) == "host_not_allowed"
        assert code(config, keyless=False, host=host) == "host_not_allowed"
    assert code(ServerConfig(allowed_hosts="*"), host="any.example") is None


@pytest.mark.parametrize("origin", [EVIL, "https://localhost.evil.example", "null", "http://", "http://["])
def test_a_page_of_another_site_is_refused_without_a_key(origin: str) -> None:
    assert code(ServerConfig(), host="localhost", origin=origin) == "origin_not_allowed"
    assert code(ServerConfig(host="0.0.0.0"), host="10.0.0.1", origin=origin) == "origin_not_allowed"
    assert code(ServerConfig(), keyless=False, host="localhost", origin=origin) is None
    assert code(ServerConfig(allowed_origins="*"), host="localhost", origin=origin) is None


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://127.0.0.1", "tauri://localhost", "app://x"]
)
def test_pages_and_applications_of_this_machine_are_served(origin: str) -> None:
    assert code(ServerConfig(), host="localhost", origin=origin) is None


def test_a_page_may_ask_the_server_that_it_came_from() -> None:
    config = ServerConfig(host="0.0.0.0")
    assert code(config, host="llm.lan:8000", origin="http://llm.lan:8000") is None
    assert code(config, host="llm.lan:8000", origin="http://other.lan:8000") == "origin_not_allowed"


def test_allowed_origins_are_exact_and_may_be_a_list_in_json() -> None:
    config = ServerConfig(allowed_origins='["https://chat.example", "https://b.example:81"]')
    assert code(config, host="localhost", origin="https://chat.example") is None
    assert code(config, host="localhost", origin="http://chat.example") == "origin_not_allowed"
