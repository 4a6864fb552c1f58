"""Small random models of transformers, in folders as its users have them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from turnout.models.hub.resolve import resolve_model
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import spread_weights


@pytest.fixture
def small_model(tmp_path: Path) -> Callable[..., tuple[Path, Any]]:
    """small_model(kind, **sizes): a folder that transformers saved, and its model."""

    def make(kind: str, **sizes: object) -> tuple[Path, Any]:
        torch.manual_seed(0)
        config = shrunk(CONFIG_MAPPING[kind](), **sizes)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        spread_weights(model)
        model.save_pretrained(tmp_path / kind)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(resolve_model("turnout-tiny") / name, tmp_path / kind)
        return tmp_path / kind, model

    return make


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test tries its models itself; `test_remembered_decoder.py` is about what starts remember."""
    monkeypatch.setattr("turnout.models.transformers_adapter.family.recall", lambda config: None)
    monkeypatch.setattr("turnout.models.transformers_adapter.family.remember", lambda config, found: None)
