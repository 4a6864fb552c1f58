"""What the fuzzers share: one served turnout-tiny, and how long they go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fuzzing import Fuzz
from tiny_server import TinyServer, serving


@pytest.fixture(
    params=["short", pytest.param("long", marks=[pytest.mark.slow, pytest.mark.timeout(0)])], scope="session"
)
def fuzz(request: pytest.FixtureRequest) -> Fuzz:
    return Fuzz(long=request.param == "long")


@pytest.fixture(scope="session")
def fuzzed() -> Iterator[TinyServer]:
    """One for all fuzzers, which no request may harm."""
    with serving("--kv-memory", "64MiB", "--engine-restarts", "0") as server:
        yield server
