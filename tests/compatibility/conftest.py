"""Engines with a small random model, made once for each configuration."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from small_engines import PLAIN, SEESAW

from turnout import LLM
from turnout.models.checkpoints.checkpoint import read_config
from turnout.models.hub.resolve import resolve_model
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

MakeLLM = Callable[[Mapping[str, Any]], LLM]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two random models with the embedded model's tokenizer, and the policy."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "turnout_plugins.py").write_text(SEESAW)
    embedded = resolve_model("turnout-tiny")
    given = read_config(embedded)
    for name, hidden, seed in (("target", 64, 1), ("draft", 32, 2)):
        shape = Shape(hidden, 2, 4, 2, 96, given["vocab_size"], max_positions=256, theta=10_000.0)
        config = {**config_of(shape, "qwen2", dtype="float32"), "eos_token_id": given["eos_token_id"]}
        write_random_checkpoint(folder / name, config, seed=seed)
        for file in embedded.glob("token*"):
            shutil.copy(file, folder / name)
    return folder


@pytest.fixture(scope="session")
def make_llm(folder: Path) -> MakeLLM:
    made: dict[str, LLM] = {}

    def make(options: Mapping[str, Any]) -> LLM:
        key = json.dumps(options, sort_keys=True)
        if key not in made:
            made.clear()  # one at a time: tests are in an order that asks for few
            given = dict(options)
            if "decoding" in given:
                given["decoding"] = given["decoding"].replace("DRAFT", str(folder / "draft"))
            made[key] = LLM(str(folder / "target"), plugins_folder=str(folder), **PLAIN, **given)
        return made[key]

    return make


@pytest.fixture(scope="session")
def make_plain(folder: Path) -> MakeLLM:
    """Given an engine's options, one with the same weights and nothing switched on."""

    @cache
    def plain(quantization: str) -> LLM:
        return LLM(str(folder / "target"), quantization=quantization, **PLAIN)

    return lambda options: plain(options.get("quantization", "none"))
