"""Engines of the random model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driving import KV_BYTES_PER_TOKEN

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.runner.assembly import build_engine


@pytest.fixture
def make_engine(random_model: Path) -> Callable[..., Engine]:
    """make_engine(tokens=…, **EngineConfig fields): an engine with that many tokens of KV memory."""

    def make(tokens: int = 8192, **options: Any) -> Engine:
        memory = tokens * KV_BYTES_PER_TOKEN
        defaults = {"max_model_len": min(tokens, 512), "device": "cpu", "dtype": "float32"}
        config = EngineConfig(model=str(random_model), kv_memory=memory, **{**defaults, **options})
        return build_engine(config).engine

    return make
