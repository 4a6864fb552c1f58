"""A real server over a real socket, its engine in a real process; in place of a model, the engine echoes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from running_server import Other, RunningServer, Start, running
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from turnout.config import EngineConfig, ServerConfig
from turnout.text.tokenizer import Tokenizer, load_tokenizer

API_WORKERS = int(os.environ.get("TEST_API_WORKERS", "1"))
"""Of servers in the tests of this folder: nearly all hold with several, too."""
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '' if add_generation_prompt else '' }}"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `resolve_model` and `load_tokenizer` want of a model."""
    folder = tmp_path_factory.mktemp("echo")
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|eos|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["hello world, hello again", "one two three four"], trainer)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


@pytest.fixture(scope="session", autouse=True)
def _echo_engine_can_be_imported() -> Iterator[None]:
    """By the engine's process too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support"), prepend=os.pathsep)
        yield


@pytest.fixture
def hangs_up() -> Iterator[None]:
    """SIGHUP does what it does by default, in the servers that the test starts, too: not so under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def server(tokenizer: Tokenizer, folder: Path) -> Iterator[RunningServer]:
    """One for all tests that leave it as it was. Each token is an event, so that they know what comes."""
    config = ServerConfig(max_body_size=100_000, api_workers=API_WORKERS, event_interval=0)
    with running(tokenizer, EngineConfig(model="echo"), config, folder=folder) as server:
        yield server


@pytest.fixture
def start(tokenizer: Tokenizer, folder: Path) -> Iterator[Start]:
    """For tests that want one of their own."""
    with ExitStack() as stack:

        def start(
            engine: dict[str, object] | None = None, other: Other | None = None, **config: object
        ) -> RunningServer:
            engine_config = EngineConfig(**{"model": "echo", **(engine or {})})
            server_config = ServerConfig(**{"api_workers": 1 if other else API_WORKERS, **config})
            return stack.enter_context(
                running(tokenizer, engine_config, server_config, other=other, folder=folder)
            )

        yield start
