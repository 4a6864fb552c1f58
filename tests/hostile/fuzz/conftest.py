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
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    """One for all fuzzers, which no request may harm. It keeps responses, files and batches.

    Its context is short: many examples ask for as much as there is.
    """
    folder = tmp_path_factory.mktemp("fuzzed")
    stores = ("--response-store", str(folder / "responses.db"), "--batch-dir", str(folder / "batches"))
    with serving(
        "--max-model-len",
        "512",
        "--kv-memory",
        "64MiB",
        "--engine-restarts",
        "0",
        "--pooling",
        "last",
        *stores,
    ) as server:
        yield server
