"""Beside a model that only embeds, one that generates has all cores of a CPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnout.config import EngineConfig, ModelConfig, ServerConfig
from turnout.config.models import shared_out
from turnout.server.fleet.models.cores import with_cores_of_generators

KINDS = {"chat": "qwen2", "code": "qwen3", "embed": "bert", "rerank": "xlm-roberta", "vectors": "qwen3"}


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    made = {name: tmp_path / name for name in KINDS}
    for name, folder in made.items():
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": KINDS[name]}))
    (made["vectors"] / "modules.json").write_text("[]")  # a decoder, as sentence-transformers keeps it
    return made


def parts(
    folders: dict[str, Path],
    names: Sequence[str],
    engine: dict[str, dict[str, Any]] | None = None,
    **server: Any,
) -> list[tuple[float | None, int]]:
    """The share of the cores of each model, and of how many engines it has an equal part."""
    given = engine or {}
    models = [
        ModelConfig(name, EngineConfig(model=name, **given.get(name, {})), ServerConfig(**server))
        for name in names
    ]
    found = with_cores_of_generators(shared_out(models), [folders[name] for name in names])
    return [(model.engine.cpu_share, model.engine.cpu_engines) for model in found]


def test_a_model_that_generates_has_all_cores_beside_those_that_do_not(folders: dict[str, Path]) -> None:
    assert parts(folders, ["chat", "embed"]) == [(None, 1), (None, 2)]
    assert parts(folders, ["rerank", "chat", "vectors"]) == [(None, 3), (None, 1), (None, 3)]


def test_those_that_generate_divide_the_cores(folders: dict[str, Path]) -> None:
    assert parts(folders, ["chat", "embed", "code"]) == [(None, 2), (None, 3), (None, 2)]
    assert parts(folders, ["chat", "code"]) == [(None, 2), (None, 2)]
    assert parts(folders, ["embed", "rerank"]) == [(None, 2), (None, 2)]


def test_replicas_and_models_that_are_not_loaded_count(folders: dict[str, Path]) -> None:
    assert parts(folders, ["chat", "embed"], replicas=2) == [(None, 2), (None, 4)]
    on_demand = parts(folders, ["chat", "embed", "code"], lazy=True, max_loaded_models=1)
    assert on_demand == [(None, 1), (None, 1), (None, 1)]


def test_cores_that_were_given_are_kept(folders: dict[str, Path]) -> None:
    share = {"chat": {"cpu_share": 0.75}}
    assert parts(folders, ["chat", "embed"], share) == [(0.75, 1), (0.25, 1)]
    engines = {"chat": {"cpu_engines": 4}}
    assert parts(folders, ["chat", "embed"], engines) == [(None, 4), (None, 2)]


def test_a_model_that_is_none_is_left_to_its_engine(folders: dict[str, Path], tmp_path: Path) -> None:
    model = ModelConfig("chat", EngineConfig(model="chat", cpu_engines=2), ServerConfig())
    found = with_cores_of_generators(
        [model, replace(model, name="embed")], [tmp_path / "gone", folders["embed"]]
    )
    assert [each.engine.cpu_engines for each in found] == [1, 2]
