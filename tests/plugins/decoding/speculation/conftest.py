"""A random model, and drafts of it that are right more or less often."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from random_drafts import KV_BYTES_PER_TOKEN, SHAPE, write_draft, write_tokenizer

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import config_of
from turnout.runner.assembly import AssembledEngine, build_engine


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_random_checkpoint(folder, config_of(SHAPE, "qwen2", dtype="float32"), seed=5)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def draft_model(random_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Right about half of the time."""
    return write_draft(random_model, tmp_path_factory.mktemp("drafts") / "draft", noise=0.25)


@pytest.fixture
def assemble(random_model: Path) -> Callable[..., AssembledEngine]:
    """assemble(tokens=…, **EngineConfig fields): an engine with that many tokens of KV memory."""

    def make(tokens: int = 8192, **options: Any) -> AssembledEngine:
        memory = tokens * KV_BYTES_PER_TOKEN
        defaults = {"max_model_len": min(tokens, 512), "device": "cpu", "dtype": "float32"}
        fields = {"model": str(random_model), "kv_memory": memory, **defaults, **options}
        return build_engine(EngineConfig(**fields))

    return make


@pytest.fixture
def make_engine(assemble: Callable[..., AssembledEngine]) -> Callable[..., Engine]:
    return lambda *args, **options: assemble(*args, **options).engine
