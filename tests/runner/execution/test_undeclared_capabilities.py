"""Attention and models that declare no capabilities are called the plain way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from driving import run
from replaying import Recorder
from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend, AttentionBackend, captures, rotates
from turnout.core.types.plan import Move, Plan
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.kernels.layers import reads_in_place
from turnout.models.decoder.packed import LayerCapabilities, layer_capabilities
from turnout.runner.execution.model_runner import ModelRunner


class PlainAttention:
    """A third party's, with nothing but what `AttentionBackend` asks for."""

    def __init__(self, backend: AttentionBackend) -> None:
        self.backend = backend

    def move(self, moves: Sequence[Move]) -> None:
        self.backend.move(moves)

    def bind(self, plan: Plan) -> None:
        self.backend.bind(plan)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.backend(layer, q, k, v)


class PlainModel(nn.Module):
    """A third party's, whose forward takes three arguments."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        return self.model(tokens, positions, attend)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden)


def test_nothing_is_declared_where_nothing_is_said() -> None:
    for attend in (PlainAttention(None), lambda layer, q, k, v: q):  # type: ignore[arg-type]
        assert not rotates(attend) and not captures(attend) and not reads_in_place(attend)  # type: ignore[arg-type]
    assert layer_capabilities(nn.Linear(2, 2)) == LayerCapabilities()


@pytest.mark.parametrize(("kernels", "recorder"), [("torch", Recorder()), ("auto", None)])
def test_tokens_are_the_same(kernels: str, recorder: Recorder | None, make_engine) -> None:
    """With steps that are captured, and with compiled kernels, whose calls no recorder sees."""

    def specs(turn: str) -> list[RequestSpec]:
        params = SamplingParams(max_tokens=9)
        prompts = [[7 + number * place % 90 for place in range(9 + 30 * number)] for number in range(4)]
        return [
            RequestSpec(id=f"{turn} {number}", prompt=prompt, params=params, seed=number)
            for number, prompt in enumerate(prompts)
        ]

    engine = make_engine(max_num_batched_tokens=40, cpu_kernels=kernels)
    declared = list(run(engine, specs("declared")).values())
    runner = engine.runner
    plain = PlainModel(runner.model), PlainAttention(runner.attention)
    engine.runner = ModelRunner(*plain, torch.device("cpu"), recorder)
    assert list(run(engine, specs("plain")).values()) == declared
    assert recorder is None or recorder.captured == 0 < recorder.pieces
