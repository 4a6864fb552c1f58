"""A random model small enough to run in milliseconds a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driving import KV_BYTES_PER_TOKEN

from turnout.core.config import EngineConfig
from turnout.core.engine import Engine
from turnout.models.random_weights import write_random_checkpoint
from turnout.models.shapes import Shape, config_of
from turnout.runner.assembly import build_engine


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random-model")
    shape = Shape(64, 2, 4, 2, 96, 160, max_positions=512, theta=10_000.0)
    write_random_checkpoint(folder, config_of(shape, "qwen2", dtype="float32"), seed=5)
    return folder


@pytest.fixture
def make_engine(random_model: Path) -> Callable[..., Engine]:
    """make_engine(tokens=…, **EngineConfig fields): an engine with that many tokens of KV memory."""

    def make(tokens: int = 8192, **options: Any) -> Engine:
        memory = tokens * KV_BYTES_PER_TOKEN
        defaults = {"max_model_len": min(tokens, 512), "device": "cpu", "dtype": "float32"}
        config = EngineConfig(model=str(random_model), kv_memory=memory, **{**defaults, **options})
        return build_engine(config).engine

    return make
