"""What a checkpoint says about sampling and ends is checked when it is loaded, not at the first request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driving import run

from turnout.config import EngineConfig
from turnout.core.errors import ModelError
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.runner.assembly import AssembledEngine, build_engine

Build = Callable[..., AssembledEngine]


@pytest.fixture
def build(random_model: Path, tmp_path: Path) -> Build:
    """An engine on a copy of the model, with other contents in one of its JSON files."""

    def build(file: str, **contents: Any) -> AssembledEngine:
        folder = tmp_path / "model"
        shutil.copytree(random_model, folder)
        path = folder / file
        given = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**given, **contents}))
        return build_engine(EngineConfig(model=str(folder), kv_memory="1MiB", device="cpu"))

    return build


@pytest.mark.parametrize(
    "contents",
    [
        {"temperature": "hot"},
        {"temperature": [1]},
        {"temperature": 1000},
        {"top_p": 5},
        {"top_k": 50.5},
        {"eos_token_id": "x"},
        {"eos_token_id": [[1]]},
        {"eos_token_id": {"a": 1}},
    ],
    ids=json.dumps,
)
def test_values_that_no_request_can_be_served_with(build: Build, contents: dict[str, Any]) -> None:
    """They were handed to every request, and failed every one of them."""
    with pytest.raises(ModelError, match=f"generation_config.json: .*{next(iter(contents))}|Expected"):
        build("generation_config.json", **contents)


def test_values_of_a_greedy_checkpoint_do_not_matter(build: Build) -> None:
    ready = build("generation_config.json", do_sample=False, temperature="none").ready
    assert ready.defaults["temperature"] == 0


@pytest.mark.parametrize("given", [5, "Qwen2ForCausalLM", [5], [["a"]], []])
def test_architectures_that_are_no_names(build: Build, given: Any) -> None:
    """A TypeError of the engine's process was all that was said."""
    with pytest.raises(ModelError, match="names no architecture; expected a list of names"):
        build("config.json", architectures=given)


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_ends_that_the_model_cannot_produce(build: Build, file: str) -> None:
    """With min_tokens they were looked up among the logits, which failed all requests of the step."""
    engine = build(file, eos_token_id=[-1, 99_999]).engine
    params = SamplingParams(temperature=0, max_tokens=4, min_tokens=3)
    spec = RequestSpec(id="a", prompt=[1, 2, 3], params=params, seed=0)
    assert len(run(engine, [spec])["a", 0]) == 4
