"""Mixtures of experts on a GPU: a layer's experts are one kernel, and no step waits for the card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from card_tensors import Tensors
from serving import OVERFLOWS, PROMPTS, built, counted, serve, waiting

from turnout.core.engine.engine import Engine
from turnout.models.decoder.grouped_experts import GroupedExperts
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.runner.execution.model_runner import ModelRunner

pytestmark = [pytest.mark.filterwarnings(OVERFLOWS), pytest.mark.slow]

GREEDY = {"greedy": {"temperature": 0, "max_tokens": 5}}
ALIKE = PROMPTS[:2]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    shape = Shape(64, 2, 4, 2, 96, 160, max_positions=512, theta=10_000.0, experts=6, top=2, expert_size=48)
    write_random_checkpoint(folder, config_of(shape, "qwen3_moe", dtype="float32"), seed=5)
    return folder


def experts_of(engine: Engine) -> list[GroupedExperts]:
    assert isinstance(engine.runner, ModelRunner)
    return [layer for layer in engine.runner.model.modules() if isinstance(layer, GroupedExperts)]


def test_tokens_are_those_of_a_cpu(mixture: Path, card: Tensors, monkeypatch: pytest.MonkeyPatch) -> None:
    captures = counted(monkeypatch)
    expected = serve(built(mixture, "cpu"), GREEDY, ALIKE)
    engine = built(mixture, "cuda")
    waiting(card)
    assert serve(engine, GREEDY, ALIKE) == expected
    assert not waiting(card)
    assert captures.replayed > 0
    assert len(experts_of(engine)) == 2 and all(layer._together for layer in experts_of(engine))


@pytest.mark.parametrize("scheme", ["int8", "int8wo", "int4wo", "fp8wo"])
def test_experts_of_few_bits(scheme: str, mixture: Path, card: Tensors) -> None:
    options: dict[str, Any] = {"quantization": scheme}
    expected = serve(built(mixture, "cpu", **options), GREEDY, ALIKE)
    engine = built(mixture, "cuda", **options)
    waiting(card)
    assert serve(engine, GREEDY, ALIKE) == expected
    assert not waiting(card)
    assert all(layer._together for layer in experts_of(engine))
