"""A GGUF file gives the tokens of the numbers that it stands for, computed by transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import CpuKernels
from turnout.kernels.build import BuildError, find_compiler
from turnout.kernels.choice import choose_kernels
from turnout.plugins.quantization.layers.blocks import BlockEmbedding, BlockLinear, NativeBlockLinear
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.weights import load_weights

PROMPT = [5, 17, 3, 99, 42, 7, 7, 130, 61, 2, 88, 14]
GGUF = Callable[..., Path]


def loaded(file: Path, kernels: CpuKernels | None = None) -> nn.Module:
    registry = Registry.load()
    context = ComputeContext(torch.device("cpu"), torch.float32, kernels)
    return load_weights(registry, open_checkpoint(registry, str(file)), "none", context, progress=False)


def reference(file: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(file.parent / "widened", dtype=torch.float32).eval()


def assert_same(file: Path, served: Any, kernels: CpuKernels | None = None) -> nn.Module:
    theirs, ours = reference(file), loaded(file, kernels)
    with torch.inference_mode():
        logits = theirs(torch.tensor([PROMPT])).logits[0]
        tokens = theirs.generate(
            torch.tensor([PROMPT]), max_new_tokens=24, do_sample=False, eos_token_id=None
        )
    assert torch.allclose(
        served(ours).logits(PROMPT), logits, rtol=1e-4, atol=1e-4 * float(logits.abs().max())
    )
    assert served(ours).greedy(PROMPT, 24) == tokens[0, len(PROMPT) :].tolist()
    return ours


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    chosen = choose_kernels("native", torch.device("cpu"), torch.float32).kernels
    assert isinstance(chosen, CpuKernels)
    return chosen


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_blocks_are_held_as_they_are(
    gguf_file: GGUF, served: Any, kernels: CpuKernels, kind: str, family: str, tied: bool
) -> None:
    """Queries and keys of Llama come in llama.cpp's order of rows."""
    file = gguf_file(kind, family, tied=tied)
    native = assert_same(file, served, kernels)
    assert isinstance(native.lm_head, NativeBlockLinear)

    plain = assert_same(file, served)
    assert isinstance(plain.lm_head, BlockLinear)
    assert isinstance(plain.model.embed_tokens, BlockEmbedding)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_1", "Q5_0", "Q4_K", "Q6_K"])
def test_other_types_are_widened(gguf_file: GGUF, served: Any, kind: str) -> None:
    assert_same(gguf_file(kind, hidden=256, intermediate=512, vocab=256), served)


@pytest.mark.parametrize("rope", ["linear", "yarn", "llama3"])
def test_scaled_positions(gguf_file: GGUF, served: Any, rope: str) -> None:
    assert_same(gguf_file("Q8_0", rope=rope, max_positions=65_536, theta=500_000.0), served)
