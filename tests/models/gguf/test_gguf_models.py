"""A GGUF file gives the tokens of the numbers that it stands for, computed by transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from family_checkpoints import write_checkpoint
from gguf_files import write_gguf
from torch import nn
from transformers import AutoModelForCausalLM

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels import CpuKernels
from turnout.kernels.build import BuildError, find_compiler
from turnout.kernels.choice import choose_kernels
from turnout.models.transformers_adapter.exchange.dense import DenseAttend
from turnout.plugins.quantization.layers.blocks import BlockEmbedding, BlockLinear, NativeBlockLinear
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.weights import load_weights

PROMPT = [5, 17, 3, 99, 42, 7, 7, 130, 61, 2, 88, 14]
GGUF = Callable[..., Path]


class Ruled(DenseAttend):
    """Attention over one sequence, by each layer's rule."""

    def __call__(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        self.lengths, rule = (len(q),), self._rules[layer]
        if k is not None and rule.values_in_keys:
            v = k[..., : rule.value_dim]
        return super().__call__(layer, q, k, v, sinks)


def loaded(file: Path, kernels: CpuKernels | None = None) -> tuple[nn.Module, Sequence[LayerAttention]]:
    registry = Registry.load()
    context = ComputeContext(torch.device("cpu"), torch.float32, kernels)
    checkpoint = open_checkpoint(registry, str(file))
    module = load_weights(registry, checkpoint, "none", context, progress=False)
    return module, checkpoint.spec.layer_attention()


def reference(file: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(file.parent / "widened", dtype=torch.float32).eval()


def assert_same(file: Path, served: Any, kernels: CpuKernels | None = None) -> nn.Module:
    theirs, (ours, rules) = reference(file), loaded(file, kernels)
    model = served(ours, lambda: Ruled(rules, 1))
    with torch.inference_mode():
        logits = theirs(torch.tensor([PROMPT])).logits[0]
        tokens = theirs.generate(
            torch.tensor([PROMPT]), max_new_tokens=24, do_sample=False, eos_token_id=None
        )
    assert torch.allclose(model.logits(PROMPT), logits, rtol=1e-4, atol=1e-4 * float(logits.abs().max()))
    assert model.greedy(PROMPT, 24) == tokens[0, len(PROMPT) :].tolist()
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


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("kind", "tied"),
    [
        ("Q8_0", True),
        ("Q4_0", False),
        pytest.param("Q8_0", False, marks=pytest.mark.slow),
        pytest.param("Q4_0", True, marks=pytest.mark.slow),
    ],
)
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


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K"])
def test_blocks_of_256_are_held_as_they_are(
    gguf_file: GGUF, served: Any, kernels: CpuKernels, kind: str, family: str
) -> None:
    file = gguf_file(kind, family, hidden=256, intermediate=512, vocab=256, tied=family == "qwen2")
    native = assert_same(file, served, kernels)
    assert native.lm_head.weights.kind == kind.lower()
    assert isinstance(assert_same(file, served).lm_head, BlockLinear)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_1", "Q5_0", "Q5_K"])
def test_other_types_are_widened(gguf_file: GGUF, served: Any, kind: str) -> None:
    assert_same(gguf_file(kind, hidden=256, intermediate=512, vocab=256), served)


OTHERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    # name: shape that transformers writes, and what llama.cpp's files cannot say otherwise
    "mixtral": ("mixtral", {"sliding_window": None}),
    "qwen2moe": ("qwen2-moe", {"mlp_only_layers": [], "moe_intermediate_size": 64}),
    "qwen3moe": ("qwen3-moe", {"decoder_sparse_step": 1, "moe_intermediate_size": 64}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 24, "tie_word_embeddings": True}),
    "gemma3": ("gemma3", {"query_pre_attn_scalar": 16, "num_hidden_layers": 7, "layer_types": None}),
    "granite": ("granite", {}),
    "olmo2": ("olmo2", {}),
    "phi3": ("phi3", {"sliding_window": 20}),
    "phi4-mini": ("phi4-mini", {}),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 4}),
    "gpt-oss": ("gpt-oss", {"hidden_size": 64, "intermediate_size": 64}),
    "deepseek2": ("deepseek-v2", {}),
    "deepseek3": ("deepseek-v3", {}),
}
QUICK = ("gemma3", "phi4-mini", "qwen2moe")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in OTHERS]
)
def test_other_architectures(name: str, tmp_path: Path, served: Any, kernels: CpuKernels) -> None:
    """Names of tensors are those of the library `gguf`; norms, experts and orders of rows are the file's."""
    shape, changes = OTHERS[name]
    write_checkpoint(shape, tmp_path / "source", **changes)
    file = write_gguf(tmp_path / "source", tmp_path / "model.gguf", widened=tmp_path / "widened")
    native = assert_same(file, served, kernels)
    assert any(isinstance(layer, NativeBlockLinear) for layer in native.modules())
    assert_same(file, served)


@pytest.mark.parametrize("rope", ["linear", "yarn", "llama3"])
def test_scaled_positions(gguf_file: GGUF, served: Any, rope: str) -> None:
    assert_same(gguf_file("Q8_0", rope=rope, max_positions=65_536, theta=500_000.0), served)
