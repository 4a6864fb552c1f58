"""Small random models of transformers, in folders as its users have them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from turnout.models.hub.resolve import resolve_model
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import spread_weights


def write_small(folder: Path, kind: str, **sizes: object) -> tuple[Path, Any]:
    """Writes a model of few and narrow layers with random weights."""
    torch.manual_seed(0)
    config = shrunk(CONFIG_MAPPING[kind](), **sizes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    spread_weights(model)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(resolve_model("turnout-tiny") / name, folder)
    return folder, model


@pytest.fixture
def small_model(tmp_path: Path) -> Callable[..., tuple[Path, Any]]:
    """small_model(kind, **sizes): a folder that transformers saved, and its model."""
    return lambda kind, **sizes: write_small(tmp_path / kind, kind, **sizes)


@pytest.fixture(scope="module")
def kept_small_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Any]]:
    """As `small_model`, for many tests of a model: the last ones are kept."""

    @lru_cache(maxsize=2)
    def made(kind: str, sizes: str) -> tuple[Path, Any]:
        return write_small(tmp_path_factory.mktemp(kind), kind, **json.loads(sizes))

    return lambda kind, **sizes: made(kind, json.dumps(sizes))


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test tries its models itself; `test_remembered_decoder.py` is about what starts remember."""
    monkeypatch.setattr("turnout.models.transformers_adapter.family.recall", lambda config: None)
    monkeypatch.setattr("turnout.models.transformers_adapter.family.remember", lambda config, found: None)
