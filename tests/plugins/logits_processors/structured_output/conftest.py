"""Only what must hold does: the model says anything else at random."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from babbler import write_babbler
from running_server import RunningServer, running

from turnout import LLM
from turnout.config import EngineConfig, ServerConfig
from turnout.server.engine.client import FACTORY
from turnout.text.tokenizer import load_tokenizer


@pytest.fixture(scope="session")
def babbler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("babbler")
    write_babbler(folder)
    return folder


@pytest.fixture(scope="session")
def llm(babbler: Path) -> Iterator[LLM]:
    yield LLM(str(babbler), kv_memory="64MiB", device="cpu", max_num_seqs=64)


@pytest.fixture(scope="session")
def server(babbler: Path) -> Iterator[RunningServer]:
    engine = EngineConfig(model=str(babbler), kv_memory="64MiB", device="cpu")
    config = ServerConfig(served_model_name="babbler")
    with running(load_tokenizer(babbler), engine, config, FACTORY) as server:
        yield server
