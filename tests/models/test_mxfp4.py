"""Weights in MXFP4 are read as the numbers that transformers reads, or held in 8 bits without a loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mxfp4 import encode_experts, encoded
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import CpuKernels, choose_kernels
from turnout.models.checkpoints.readers.formats import open_weights
from turnout.models.checkpoints.readers.mxfp4 import decoded
from turnout.models.gguf.numbers import dequantized
from turnout.plugins.quantization.layers.blocks import NativeBlockLinear
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.weights import load_weights, quantization_of

EXPERTS, SIZE, INNER = 3, 64, 32
CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "vocab_size": 50,
    "hidden_size": SIZE,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": 2,
}
ATTENTION = (("q", 64), ("k", 32), ("v", 32), ("o", 64))
STACK = "model.layers.0.mlp.experts.gate_up_proj"


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))) * shape[-1] ** -0.5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of gpt-oss with one layer, whose experts are in MXFP4."""
    layer = "model.layers.0"
    shapes = {
        "model.embed_tokens.weight": (50, SIZE),
        "lm_head.weight": (50, SIZE),
        "model.norm.weight": (SIZE,),
        f"{layer}.input_layernorm.weight": (SIZE,),
        f"{layer}.post_attention_layernorm.weight": (SIZE,),
        **{f"{layer}.self_attn.{part}_proj.weight": (n, SIZE) for part, n in ATTENTION},
        **{f"{layer}.self_attn.{part}_proj.bias": (n,) for part, n in ATTENTION},
        f"{layer}.self_attn.sinks": (4,),
        f"{layer}.mlp.router.weight": (EXPERTS, SIZE),
        f"{layer}.mlp.router.bias": (EXPERTS,),
        STACK: (EXPERTS, SIZE, 2 * INNER),
        f"{STACK}_bias": (EXPERTS, 2 * INNER),
        f"{layer}.mlp.experts.down_proj": (EXPERTS, INNER, SIZE),
        f"{layer}.mlp.experts.down_proj_bias": (EXPERTS, SIZE),
    }
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    save_file({key: drawn(*shape) for key, shape in shapes.items()}, tmp_path / "model.safetensors")
    encode_experts(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    made, note = choose_kernels("auto", torch.device("cpu"), torch.float32)
    if not isinstance(made, CpuKernels):
        pytest.skip(note)
    return made


def loaded(folder: Path, quantization: str = "none", kernels: CpuKernels | None = None) -> nn.Module:
    registry = Registry.load()
    context = ComputeContext(torch.device("cpu"), torch.float32, kernels)
    return load_weights(
        registry, open_checkpoint(registry, str(folder)), quantization, context, progress=False
    )


def widened(folder: Path) -> Path:
    """Writes the same numbers in float32, as transformers has them, and returns that folder."""
    tensors = load_file(folder / "model.safetensors")
    for key in [key for key in tensors if key.endswith("_blocks")]:
        stack = key.removesuffix("_blocks")
        numbers = decoded(tensors.pop(key), tensors.pop(f"{stack}_scales"))
        tensors[stack] = numbers.float().mT.contiguous()
    (folder / "widened").mkdir()
    save_file(tensors, folder / "widened" / "model.safetensors")
    (folder / "widened" / "config.json").write_text(json.dumps(CONFIG))
    return folder / "widened"


def expert(module: nn.Module, number: int = 1) -> nn.Module:
    return module.model.layers[0].mlp.experts[number]


def test_numbers_are_those_of_transformers() -> None:
    """Of all codes, and of scales from the smallest to the largest of which transformers keeps numbers."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    blocks = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(1, 12, 1, 1)
    scales = torch.arange(1, 12 * 21, 21, dtype=torch.uint8)[:, None].expand(12, 16)[None].contiguous()
    theirs = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).mT
    assert torch.equal(decoded(blocks, scales).float(), theirs)


@pytest.mark.parametrize("low", [104, 112, 136])
def test_blocks_of_eight_bits_hold_the_same_numbers(low: int, folder: Path) -> None:
    """To the ends of what scales in float16 hold."""
    tensors = load_file(folder / "model.safetensors")
    tensors[f"{STACK}_scales"] = tensors[f"{STACK}_scales"] % 8 + low
    save_file(tensors, folder / "model.safetensors")
    (file,) = open_weights([folder / "model.safetensors"])
    key = f"{STACK}_blocks"
    assert file.blocks(key) == "q8_0" and file.shape(key) == (EXPERTS, 2 * INNER, SIZE)
    for take in ((1,), (2, slice(0, None, 2)), (0, slice(1, None, 2))):
        with file.read(key, take) as numbers:
            assert torch.equal(dequantized(file.read_blocks(key, take), "q8_0"), numbers.float())


def test_scales_beyond_float16_are_widened(folder: Path, kernels: CpuKernels) -> None:
    """Unless all their numbers are 0."""
    tensors = load_file(folder / "model.safetensors")
    tensors[f"{STACK}_scales"][1, 5, 0] = 60
    tensors[f"{STACK}_blocks"][1, 5, 0] = 0x80
    save_file(tensors, folder / "model.safetensors")
    assert isinstance(expert(loaded(folder, kernels=kernels)).joint, NativeBlockLinear)

    tensors[f"{STACK}_blocks"][1, 5, 0, 3] = 1
    save_file(tensors, folder / "model.safetensors")
    module = loaded(folder, kernels=kernels)
    assert not isinstance(expert(module).joint, NativeBlockLinear)
    assert isinstance(expert(module).down_proj, NativeBlockLinear)


def test_the_experts_of_a_cpu_hold_eight_bits(folder: Path, kernels: CpuKernels) -> None:
    module, plain = loaded(folder, kernels=kernels), loaded(widened(folder))
    x = drawn(5, SIZE)
    with torch.inference_mode():
        torch.testing.assert_close(
            module.model.layers[0].mlp(x), plain.model.layers[0].mlp(x), rtol=1e-5, atol=1e-5
        )
        torch.testing.assert_close(expert(module)(x), expert(plain)(x), rtol=1e-5, atol=1e-5)
    assert isinstance(expert(module).joint, NativeBlockLinear)
    assert isinstance(expert(module).down_proj, NativeBlockLinear)


@pytest.mark.parametrize("quantization", ["int8", "int8wo", "int4wo"])
def test_it_can_be_quantized_anew(quantization: str, folder: Path, kernels: CpuKernels) -> None:
    """To the bit as from a checkpoint with the same numbers."""
    ours, theirs = loaded(folder, quantization, kernels), loaded(widened(folder), quantization, kernels)
    x = drawn(5, SIZE)
    with torch.inference_mode():
        assert torch.equal(ours.model.layers[0].mlp(x), theirs.model.layers[0].mlp(x))
    checkpoint = open_checkpoint(Registry.load(), str(folder))
    assert quantization_of(checkpoint, quantization) == f"{quantization}, of mxfp4 (the checkpoint's own)"


def test_modules_of_transformers_have_the_same_numbers(folder: Path) -> None:
    registry = Registry.load()
    checkpoint = open_checkpoint(registry, str(folder), implementation="transformers")
    context = ComputeContext(torch.device("cpu"), torch.float32)
    module = load_weights(registry, checkpoint, "none", context, progress=False)
    ours = expert(loaded(folder))
    theirs = module.get_parameter("model.layers.0.mlp.experts.gate_up_proj")[1]
    assert torch.equal(theirs[:, ::2].t(), ours.gate_proj.weight)
    assert torch.equal(theirs[:, 1::2].t(), ours.up_proj.weight)


def test_scales_may_lie_in_another_file(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    with_numbers = loaded(folder)
    (folder / "model.safetensors").unlink()
    shards = {
        "a": {key: value for key, value in tensors.items() if key.endswith("_scales")},
        "b": {key: value for key, value in tensors.items() if not key.endswith("_scales")},
    }
    for name, part in shards.items():
        save_file(part, folder / f"{name}.safetensors")
    weight_map = {key: f"{name}.safetensors" for name, part in shards.items() for key in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(expert(loaded(folder)).up_proj.weight, expert(with_numbers).up_proj.weight)


def test_scales_that_are_missing(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors[f"{STACK}_scales"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"blocks of MXFP4 whose scales '.*gate_up_proj_scales' are missing"):
        loaded(folder)


def damaged(tensors: dict[str, Tensor], part: str, change: Callable[[Tensor], Tensor]) -> None:
    tensors[f"{STACK}{part}"] = change(tensors[f"{STACK}{part}"]).contiguous()


@pytest.mark.parametrize("native", [False, True], ids=["torch", "native"])
@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("_scales", lambda scales: scales[1:], "_scales' has shape .* is expected"),
        ("_scales", Tensor.flatten, "_scales' has shape .* is expected"),
        ("_scales", lambda scales: scales.mT, "_scales' has shape .* is expected"),
        ("_scales", lambda scales: scales.float(), "_scales' is torch.float32, uint8 is expected"),
        ("_scales", lambda scales: scales.fill_(255), "_scales' holds scales that are NaN"),
        ("_blocks", lambda blocks: blocks.int(), "_blocks' is torch.int32, uint8 is expected"),
        ("_blocks", lambda blocks: blocks[0, 0, 0], "_blocks' has shape .*, of .* is expected|_scales' has"),
        ("_bias", lambda bias: bias[:2], "_bias' has shape .* asks for 3 of its first dimension"),
        ("_bias", lambda bias: bias.repeat(2, 1), "_bias' has shape .* asks for 3 of its first dimension"),
        ("_bias", lambda bias: bias[:, 0], "does not fit what config.json asks for"),
    ],
)
def test_what_does_not_go_together_is_named(
    part: str,
    change: Callable[[Tensor], Tensor],
    message: str,
    native: bool,
    folder: Path,
    request: pytest.FixtureRequest,
) -> None:
    """It ended in a traceback, or, with a scale for each expert alone, in other numbers."""
    kernels = request.getfixturevalue("kernels") if native else None
    tensors = load_file(folder / "model.safetensors")
    damaged(tensors, part, change)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=message):
        loaded(folder, kernels=kernels)


def test_the_encoder_of_these_tests_loses_what_four_bits_lose() -> None:
    weight = drawn(4, 64)
    error = (decoded(*encoded(weight)).float() - weight).abs()
    assert float(error.max()) < 0.2 * float(weight.abs().max())
    assert torch.equal(decoded(*encoded(decoded(*encoded(weight)))), decoded(*encoded(weight)))
