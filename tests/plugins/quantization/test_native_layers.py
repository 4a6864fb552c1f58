"""Quantized layers computed by compiled kernels: joined, tied, and as near as PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from exactness import relative_error
from torch import Tensor, nn

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import CpuKernels, choose_kernels
from turnout.models.decoder.fused import FusedAttention, FusedMLP
from turnout.models.decoder.packed import NarrowEmbedding, PackedEmbedding, PackedLinear
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.plugins.quantization.layers.embedding import Int8Embedding
from turnout.plugins.quantization.layers.native import NativeLinear
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.memory.budget import weight_bytes
from turnout.runner.weights import load_weights

REGISTRY = Registry.load()
CPU = torch.device("cpu")
SCHEMES = ["int8", "int8wo", "int4wo"]
TABLE = "lm_head=true,embeddings=true"


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    made, note = choose_kernels("auto", CPU, torch.float32)
    if made is None:
        pytest.skip(note)
    return made


@pytest.fixture(scope="module", params=["tied", "untied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough for errors to even out; numbers of bfloat16."""
    folder = tmp_path_factory.mktemp(request.param)
    shape = Shape(128, 2, 4, 2, 192, 160, max_positions=512, tied=request.param == "tied")
    write_random_checkpoint(folder, config_of(shape, "qwen2"), seed=5, dtype="bfloat16")
    return folder


def load(folder: Path, quantization: str, kernels: CpuKernels | None) -> nn.Module:
    checkpoint = open_checkpoint(REGISTRY, str(folder))
    return load_weights(
        REGISTRY, checkpoint, quantization, ComputeContext(CPU, torch.float32, kernels), progress=False
    )


def causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads = (x.transpose(0, 1)[None] for x in (q, k, v))
    mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    return mixed[0].transpose(0, 1)


@torch.inference_mode()
def logits(module: nn.Module, count: int = 40) -> Tensor:
    return module.logits(module(torch.arange(count) * 3 % 160, torch.arange(count), causal))


def off(module: nn.Module, model: Path) -> float:
    """How far logits are from the unquantized model's."""
    return relative_error(logits(module), logits(load(model, "none", None)).double())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_logits_are_as_near_the_unquantized_model_s_as_pytorch_s(
    scheme: str, model: Path, kernels: CpuKernels
) -> None:
    assert off(load(model, scheme, kernels), model) < 1.2 * off(load(model, scheme, None), model)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_layers_of_one_input_become_one(scheme: str, model: Path, kernels: CpuKernels) -> None:
    for layer in load(model, scheme, kernels).model.layers:
        assert isinstance(layer.self_attn, FusedAttention) and isinstance(layer.mlp, FusedMLP)
        assert isinstance(layer.self_attn.joint, NativeLinear)
        assert isinstance(layer.mlp.joint, NativeLinear)
        assert layer.mlp.joint.out_features == 2 * 192


def test_layers_that_a_panel_would_share_stay_apart(tmp_path: Path, kernels: CpuKernels) -> None:
    shape = Shape(60, 1, 2, 1, 90, 100, max_positions=64)
    write_random_checkpoint(tmp_path, config_of(shape, "qwen2"), seed=5)
    module, plain = load(tmp_path, "int8wo", kernels), load(tmp_path, "none", None)
    assert module.model.layers[0].mlp.joint is None
    assert relative_error(logits(module, 20), logits(plain, 20).double()) < 0.02


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_row_does_not_depend_on_the_others(scheme: str, model: Path, kernels: CpuKernels) -> None:
    """To the last bit, through all of an MLP."""
    mlp = load(model, scheme, kernels).model.layers[0].mlp
    x = torch.randn(40, 128, generator=torch.Generator().manual_seed(0))
    assert torch.equal(mlp(x), torch.cat([mlp(row[None]) for row in x]))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_head_and_embedding_are_quantized_where_asked_for(
    scheme: str, model: Path, kernels: CpuKernels
) -> None:
    module = load(model, f"{scheme}:{TABLE}", kernels)
    assert isinstance(module.lm_head, NativeLinear) and module.lm_head.weights.numbers.numel() >= 160 * 32
    tied = model.name.startswith("tied")
    assert isinstance(module.model.embed_tokens, PackedEmbedding if tied else Int8Embedding)
    assert off(module, model) < 1.3 * off(load(model, scheme, None), model) + 0.05


def test_tables_take_the_bytes_that_start_up_says(model: Path, kernels: CpuKernels) -> None:
    tables = {
        options: load(model, f"int8{options}", kernels) for options in ("", ":lm_head=true", f":{TABLE}")
    }
    found = {
        options: weight_bytes(nn.ModuleList([module.lm_head, module.model.embed_tokens]))
        for options, module in tables.items()
    }
    table, eight = 160 * 128 * 2, 160 * (128 + 4 + 4)  # and what the zero of activations adds to sums
    if model.name.startswith("tied"):
        assert found == {"": table, ":lm_head=true": table + eight, f":{TABLE}": eight}
    else:
        assert found == {"": 2 * table, ":lm_head=true": table + eight, f":{TABLE}": 2 * eight - 4 * 160}


def test_an_embedding_of_its_own_keeps_the_bytes_it_came_with(model: Path, kernels: CpuKernels) -> None:
    kept = load(model, "none", kernels).model.embed_tokens
    if model.name.startswith("tied"):
        assert isinstance(kept, PackedEmbedding)
        return
    assert isinstance(kept, NarrowEmbedding)
    tokens = torch.tensor([0, 159, 7, 7])
    assert torch.equal(kept(tokens), load(model, "none", None).model.embed_tokens(tokens))


def test_without_kernels_the_embedding_has_a_table_of_its_own(model: Path) -> None:
    module = load(model, f"int8wo:{TABLE}", None)
    assert isinstance(module.model.embed_tokens, Int8Embedding)
    assert off(module, model) < 0.1


def test_others_stay_packed(model: Path, kernels: CpuKernels) -> None:
    assert isinstance(load(model, "int8", kernels).lm_head, PackedLinear)
