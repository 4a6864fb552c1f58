"""Layers with experts are in the one native call with all others, to the bits that they have one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from family_checkpoints import VOCABULARY, write_checkpoint
from torch import Tensor

from turnout.config import EngineConfig
from turnout.core.interfaces.compute import Runner
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.decoder.native_stack import NativeStack
from turnout.runner.assembly import build_engine
from turnout.runner.execution.model_runner import ModelRunner

LENGTHS = (5, 40, 21)
CHANGES: Mapping[str, Mapping[str, object]] = {
    "mixtral": {},
    "qwen3-moe": {"moe_intermediate_size": 64},  # every other layer has an MLP for all tokens
    "qwen3-moe of all": {"moe_intermediate_size": 64, "norm_topk_prob": False},
    "gpt-oss": {},  # sinks, windows, biases and a gate with bounds
}
"""What is changed of the checkpoint of the name before the space. Integers of gate and up are joined where
their outputs fill panels, of 32 at most."""


@pytest.fixture(scope="module", params=CHANGES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mixture")
    write_checkpoint(request.param.partition(" ")[0], made, **CHANGES[request.param])
    return made


@pytest.mark.parametrize("quantization", ["none", "int8", "int4wo"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bits_are_those_of_layers_one_by_one(folder: Path, dtype: str, quantization: str) -> None:
    config = EngineConfig(
        model=str(folder),
        dtype=dtype,
        quantization=quantization,
        cpu_kernels="native",
        max_num_batched_tokens=32,
        max_model_len=128,
        kv_memory=2**22,
    )
    together, apart = logits_of(config, one_call=True), logits_of(config, one_call=False)
    assert len(together) == len(apart) > 12
    assert all(torch.equal(*pair) for pair in zip(together, apart, strict=True))


def logits_of(config: EngineConfig, *, one_call: bool) -> list[Tensor]:
    """The logits of each step of three requests, whose prompts come in pieces."""
    engine = build_engine(config).engine
    assert isinstance(engine.runner, ModelRunner)
    stack = engine.runner.model.get_submodule("model")
    assert isinstance(stack, NativeStack)
    if not one_call:
        stack._layers = lambda in_place: None  # type: ignore[method-assign]
    engine.runner = watched = Watched(engine.runner)
    for number, length in enumerate(LENGTHS):
        prompt = [(7 * place + 31 * number) % VOCABULARY for place in range(length)]
        params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
        engine.add(RequestSpec(id=str(number), prompt=prompt, params=params, seed=0))
    while engine.busy:
        engine.step()
    assert (stack._joined is not None) == one_call
    return watched.found


class Watched(Runner):
    """A runner whose logits are kept."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.found: list[Tensor] = []

    def run(self, plan: Plan) -> Logits:
        logits = self._runner.run(plan)
        self.found.append(logits.values.clone())
        return logits
