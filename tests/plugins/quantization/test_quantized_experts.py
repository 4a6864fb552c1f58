"""Experts in 8 and 4 bits give the tokens of the weights they stand for, alone and with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from turnout import LLM, SamplingParams
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Quantizer
from turnout.kernels import choose_kernels
from turnout.models.decoder.fused_experts import FusedExperts
from turnout.models.hub.resolve import resolve_model
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.plugins.quantization.schemes.int4 import Int4WeightOnly
from turnout.plugins.quantization.schemes.int8 import Int8WeightOnly
from turnout.scripts.make_model import copy_tokenizer

PROMPTS = [[(7 * i + 11 * j) % 250 + 3 for j in range(4 + i)] for i in range(16)]
SCHEMES = {"int8wo": Int8WeightOnly(), "int4wo": Int4WeightOnly()}


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    shape = Shape(64, 2, 4, 2, 96, 259, max_positions=256, tied=False, experts=6, top=2, expert_size=64)
    write_random_checkpoint(tmp_path, config_of(shape, "qwen3_moe", dtype="float32"), seed=5)
    copy_tokenizer(resolve_model("turnout-tiny"), tmp_path)
    return tmp_path


def dequantize(folder: Path, quantizer: Quantizer) -> None:
    """Replaces the weights in `folder` by those that quantized ones stand for."""
    kernels, note = choose_kernels("auto", torch.device("cpu"), torch.float32)
    if kernels is None:
        pytest.skip(note)
    context = ComputeContext(torch.device("cpu"), torch.float32, kernels)
    tensors = load_file(folder / "model.safetensors")
    for key, weight in tensors.items():
        if not key.endswith("_proj.weight"):
            continue
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        assert quantizer.wants(key.removesuffix(".weight"), layer)
        made = quantizer.convert_named(key.removesuffix(".weight"), layer, context)
        tensors[key] = made(torch.eye(weight.shape[1])).t().contiguous()
    save_file(tensors, folder / "model.safetensors")


Answer = tuple[list[int], list[float]]
"""Greedy tokens, and their log-probabilities."""


def served(folder: Path, prompts: list[list[int]], **options: str) -> list[Answer]:
    fixed: dict[str, Any] = {"dtype": "float32", "max_model_len": 128, "kv_memory": 2**24, "max_num_seqs": 16}
    fixed["cpu_kernels"] = "native"  # which alone compute experts together; measuring may prefer PyTorch's
    llm = LLM(str(folder), **fixed, **options)
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=1)
    outputs = [each.outputs[0] for each in llm.generate(prompts, params, progress=False)]
    experts = [layer for layer in llm.engine.runner.model.modules() if isinstance(layer, FusedExperts)]
    assert len(experts) == 2 and all(layer._together is not None for layer in experts)
    return [
        (list(out.token_ids), [next(iter(each.values())).logprob for each in out.logprobs]) for out in outputs
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tokens_are_those_of_the_dequantized_model(scheme: str, mixture: Path) -> None:
    """Up to the 16 bits to which activations are rounded: where a token differs, both are as likely."""
    few = served(mixture, PROMPTS, quantization=scheme)
    assert len({token for tokens, _ in few for token in tokens}) > 20
    dequantize(mixture, SCHEMES[scheme])
    equal = 0
    for (tokens, scores), (wanted, expected) in zip(few, served(mixture, PROMPTS), strict=True):
        same = next((i for i, pair in enumerate(zip(tokens, wanted, strict=True)) if len({*pair}) > 1), 23)
        assert scores[: same + 1] == pytest.approx(expected[: same + 1], abs=5e-3)
        equal += tokens == wanted
    assert equal > 10


@pytest.mark.parametrize("scheme", ["int8", pytest.param("int8wo", marks=pytest.mark.slow), "int4wo"])
def test_a_request_alone_has_the_bits_that_it_has_with_others(scheme: str, mixture: Path) -> None:
    together = served(mixture, PROMPTS, quantization=scheme)
    assert served(mixture, PROMPTS[:1], quantization=scheme) == together[:1]
    assert served(mixture, PROMPTS[9:10], quantization=scheme) == together[9:10]
