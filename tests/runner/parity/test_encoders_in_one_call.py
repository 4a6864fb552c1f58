"""Encoders that compiled kernels compute in one call: to the bit what they compute layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from encoded import PROMPTS, engine_of, pooled
from test_encoders_equal_transformers import CONFIGS, SECOND, made
from torch import Tensor

from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.types.plan import Move, Plan
from turnout.models.encoder.native_stack import NativeEncoder
from turnout.runner.execution.model_runner import ModelRunner


class CountedAttention:
    """Attention that says nothing of whole texts, and counts how often it is called."""

    def __init__(self, backend: AttentionBackend) -> None:
        self.backend, self.calls = backend, 0

    def move(self, moves: Sequence[Move]) -> None:
        self.backend.move(moves)

    def bind(self, plan: Plan) -> None:
        self.backend.bind(plan)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.calls += 1
        return self.backend(layer, q, k, v)


class SilentAttention(CountedAttention):
    """It declares whole texts, and must not be called."""

    @property
    def capabilities(self) -> object:
        return self.backend.capabilities

    @property
    def texts(self) -> object:
        return self.backend.texts  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "dtype", "more"),
    [
        *((name, "float32", {}) for name in CONFIGS),
        *((name, "bfloat16", {}) for name in ("Bert", "ModernBert")),
        ("Roberta", "float32", {"hidden_act": "gelu_pytorch_tanh"}),
    ],
)
def test_one_call_computes_what_layers_do(
    tmp_path: Path, name: str, dtype: str, more: dict[str, object]
) -> None:
    made(tmp_path, name, "Model", **more)
    engine = engine_of(tmp_path, dtype=dtype, cpu_kernels="native")
    second = SECOND if name == "Bert" else None
    model, attention = engine.runner.model, engine.runner.attention  # type: ignore[attr-defined]
    assert isinstance(model, NativeEncoder)
    found = {}
    for kind in (SilentAttention, CountedAttention):
        attend = kind(attention)
        engine.runner = ModelRunner(model, attend, torch.device("cpu"))  # type: ignore[arg-type]
        found[kind] = [
            vector for pooling in ("cls", "mean") for vector in pooled(engine, second=second, pooling=pooling)
        ]
        assert (attend.calls > 0) is (kind is CountedAttention)
    for one, other in zip(*found.values(), strict=True):
        assert (one == other).all()
    assert len(found[CountedAttention]) == 2 * len(PROMPTS)


def test_embeddings_that_bfloat16_holds_are_read_as_such(tmp_path: Path) -> None:
    """They are kept in half the memory, and widened as they are read."""
    model = made(tmp_path, "Bert", "Model")
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    model.save_pretrained(tmp_path)
    engine = engine_of(tmp_path, cpu_kernels="native")
    native = pooled(engine, pooling="mean")
    runner = engine.runner
    engine.runner = ModelRunner(
        runner.model,  # type: ignore[attr-defined]
        CountedAttention(runner.attention),  # type: ignore[attr-defined, arg-type]
        torch.device("cpu"),
    )
    for one, other in zip(native, pooled(engine, pooling="mean"), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_other_activations_are_computed_layer_by_layer(tmp_path: Path, activation: str) -> None:
    model = made(tmp_path, "Bert", "Model", hidden_act=activation)
    found = pooled(engine_of(tmp_path, cpu_kernels="native"), pooling="cls")
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([PROMPTS[3]])).last_hidden_state[0, 0]
    torch.testing.assert_close(torch.tensor(found[3]), expected, atol=1e-5, rtol=0)
