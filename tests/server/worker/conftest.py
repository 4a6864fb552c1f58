"""Workers of the echo engine, and servers of their engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, running
from worker_process import Connect, StartWorker, WorkerProcess

from turnout.config import EngineConfig, ServerConfig
from turnout.text.tokenizer import Tokenizer


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "fleet.key"


@pytest.fixture
def worker(keys: Path, folder: Path) -> Iterator[StartWorker]:
    """Starts workers at 127.0.0.2, 127.0.0.3 and so on."""
    started: list[WorkerProcess] = []

    def start(key_file: Path = keys, model: Path = folder, listen: str = "", **config: Any) -> WorkerProcess:
        listen = listen or f"tcp://127.0.0.{2 + len(started)}:*"
        started.append(WorkerProcess(listen, key_file, model, **config))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def connect(tokenizer: Tokenizer, keys: Path) -> Iterator[Connect]:
    """Starts servers of workers' engines."""
    with ExitStack() as stack:

        def start(*workers: WorkerProcess | str, key_file: Path = keys, **config: Any) -> RunningServer:
            urls = [each if isinstance(each, str) else each.url for each in workers]
            server = ServerConfig(replica=urls, replica_key_file=str(key_file), **config)
            return stack.enter_context(running(tokenizer, EngineConfig(model="echo"), server))

        yield start
