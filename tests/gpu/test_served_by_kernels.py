"""The kernels behind the engine: tokens are those of plain PyTorch, also when preempted and swapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from turnout.core.config import EngineConfig
from turnout.core.engine import Engine
from turnout.core.errors import ConfigError
from turnout.core.request import RequestSpec
from turnout.core.sampling_params import SamplingParams
from turnout.plugins.kv_backends import paged_kernels
from turnout.plugins.kv_backends.shared_prefixes import SharedPrefix, shared_prefixes
from turnout.plugins.quantization import device_layers
from turnout.plugins.quantization.gpu import products
from turnout.runner.assembly import build_engine
from turnout.runner.model_runner import ModelRunner

PROMPTS = [[7, 8, 9, 10, 11, 12, 13, 14, 15, 16, tail] for tail in (1, 2)] + [[5] * 30]
BYTES_PER_TOKEN = 2 * 2 * 2 * 16 * 4


def served(model: Path, kv: str, device: torch.device, **options: Any) -> tuple[list[list[int]], int]:
    """Each prompt's six tokens, and how often somebody was preempted."""
    config = EngineConfig(
        model=str(model), kv=kv, device=device.type, dtype="float32", max_model_len=64, **options
    )
    engine = build_engine(config).engine
    return serve(engine), engine.scheduler.preemptions


def serve(engine: Engine) -> list[list[int]]:
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    outputs: dict[str, list[int]] = {}
    for number, prompt in enumerate(PROMPTS):
        outputs[str(number)] = []
        engine.add(RequestSpec(id=str(number), prompt=prompt, params=params, seed=0))
    while engine.busy:
        for delta in engine.step():
            outputs[delta.request_id] += delta.tokens
    return list(outputs.values())


@pytest.mark.parametrize(
    "options",
    [
        {"kv_memory": "1MiB", "gpu_kernels": "triton"},
        {"kv_memory": "1MiB", "max_num_batched_tokens": 7, "block_size": 4},
        {"kv_memory": 64 * BYTES_PER_TOKEN, "block_size": 4, "preemption": "swap", "swap_memory": "1MiB"},
    ],
    ids=["fused", "chunked", "swapped"],
)
def test_tokens_are_those_of_plain_pytorch(
    random_model: Path, options: dict[str, Any], device: torch.device
) -> None:
    found, preemptions = served(random_model, "paged:attention=triton", device, **options)
    assert bool(preemptions) == ("preemption" in options)
    assert found == served(random_model, "paged:attention=torch", device, kv_memory="1MiB")[0]


def test_a_prefix_that_is_read_once_changes_no_token(
    random_model: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[SharedPrefix]()

    def watched(*args: Any) -> list[SharedPrefix]:
        found = shared_prefixes(*args)
        read.extend(found)
        return found

    monkeypatch.setattr(paged_kernels, "shared_prefixes", watched)
    # Who comes in the same step finds nothing: the second prompt has to come after the first.
    options: dict[str, Any] = {"kv_memory": "1MiB", "block_size": 4, "max_num_batched_tokens": 11}
    found = served(random_model, "paged:attention=triton,cascade=8", device, **options)
    assert found == served(random_model, "paged:attention=torch", device, **options)
    assert read, "no prefix was read once"


@pytest.mark.parametrize("scheme", ["int8", "int8wo", "fp8wo"])
def test_quantized_layers_that_read_the_same_input_are_one(
    scheme: str, random_model: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_layers, "_on_cpu", lambda codes: False)
    monkeypatch.setattr(products, "MOST_PARTS", 1)  # into how many parts inputs are cut depends on outputs
    found = []
    for kernels in ("triton", "torch"):
        config = EngineConfig(
            model=str(random_model),
            kv="paged:attention=torch",
            device=device.type,
            dtype="float32",
            max_model_len=64,
            kv_memory="1MiB",
            quantization=scheme,
            gpu_kernels=kernels,
            cpu_kernels="torch",
        )
        engine = build_engine(config).engine
        assert isinstance(engine.runner, ModelRunner)
        layers = engine.runner.model.model.layers  # type: ignore[union-attr]
        joints = [getattr(part, "joint", None) for layer in layers for part in (layer.self_attn, layer.mlp)]  # type: ignore[union-attr]
        assert all(type(joint).__module__.endswith("gpu.layers") for joint in joints) == (kernels == "triton")
        found.append(serve(engine))
    assert found[0] == found[1]


def test_reading_prefixes_once_is_refused_without_these_kernels(random_model: Path) -> None:
    with pytest.raises(ConfigError, match="paged:cascade is of Triton's kernels"):
        served(random_model, "paged:attention=torch,cascade=8", torch.device("cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_they_are_refused(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(ConfigError, match="attention=triton needs a GPU; use torch on a CPU"):
        served(random_model, "paged:attention=triton", torch.device("cpu"))
    with pytest.raises(ConfigError, match="gpu_kernels=triton on device cpu: they need a GPU; leave it out"):
        served(random_model, "paged", torch.device("cpu"), gpu_kernels="triton")
