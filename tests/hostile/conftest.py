"""A served turnout-tiny, which each test leaves as it was: healthy, and with the same answers to others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tiny_server import TinyServer, serving


@pytest.fixture(scope="session")
def tiny_server() -> Iterator[TinyServer]:
    """One for all modules, since a start takes longer than most tests."""
    with serving("--kv-memory", "64MiB") as server:
        yield server


@pytest.fixture
def tiny(tiny_server: TinyServer) -> Iterator[TinyServer]:
    """The shared server, which is found unharmed when the test has ended."""
    yield tiny_server
    tiny_server.check()
