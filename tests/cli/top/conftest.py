"""What the tests of `turnout top` share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from live_server import LiveServer


@pytest.fixture
def live_server() -> Iterator[LiveServer]:
    server = LiveServer()
    yield server
    server.stop()
