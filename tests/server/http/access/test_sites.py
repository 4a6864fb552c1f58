"""Hosts and pages: which a server answers."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError
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


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("https://chat.example/", "https://chat.example"),
        ("HTTPS://Chat.Example:443", "https://chat.example"),
        ("http://[::1]:80/", "http://[::1]"),
        ("http://chat.example:443", "http://chat.example:443"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ("null", "null"),
    ],
)
def test_origins_have_the_form_that_browsers_send(given: str, origin: str) -> None:
    """A slash at the end, or a capital letter, matched no page."""
    assert ServerConfig(allowed_origins=given).allowed_origins == (origin,)


@pytest.mark.parametrize(
    "given",
    [
        "nope",
        "chat.example",
        "https://a.example/path",
        "https://",
        "https://*.a.example",
        "https://a b",
        "http://é.a",
    ],
)
def test_what_is_no_origin_is_refused(given: str) -> None:
    with pytest.raises(
        ConfigError, match=r"allowed_origins: .* is no origin; expected scheme://host\[:port\]"
    ):
        ServerConfig(allowed_origins=("https://fine.example", given))


@pytest.mark.parametrize(
    ("given", "host"),
    [("LLM.example.", "llm.example"), ("[2001:DB8:0::1]", "2001:db8::1"), ("10.0.0.1",) * 2],
)
def test_hosts_have_the_form_that_they_are_compared_in(given: str, host: str) -> None:
    assert ServerConfig(allowed_hosts=given).allowed_hosts == (host,)


@pytest.mark.parametrize(
    "given", ["llm.example.com:8080", "http://x:80/", "http://x", "a.*", "*.", "[::1]:80", "a b", "é.example"]
)
def test_what_is_no_host_name_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed_hosts: .* expected a name without scheme and port"):
        ServerConfig(allowed_hosts=given)
