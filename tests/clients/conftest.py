"""A server whose assistant says what a test's script says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from assistant import AssistantServer, assistant_serving
from script import Script


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AssistantServer]:
    """Each token is an event, since suites count the parts of streams."""
    with assistant_serving(tmp_path_factory.mktemp("assistant"), "--event-interval", "0") as server:
        yield server


@pytest.fixture
def script(server: AssistantServer) -> Script:
    return server.script
