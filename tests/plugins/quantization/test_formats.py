"""Checkpoints that were quantized beforehand, by published layouts, compute what their weights stand for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from exactness import exact, relative_error
from layouts import AWQ, CASES, DYNAMIC, GPTQ, REGISTRY, adopter, compressed
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from writers import (
    Written,
    awq,
    fp8_blocks,
    fp8_channels,
    fp8_layers,
    gptq,
    int8_channels,
    pack_quantized,
    packed,
)

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.kernels import choose_kernels
from turnout.kernels.blocks import BLOCK_TYPES
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.runner.assembly import build_engine
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.weights import load_weights

CONTEXT = ComputeContext(torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("computed_by", ["native", "torch"])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("case", CASES)
def test_a_layer_computes_with_the_weights_it_stands_for(
    case: str, bias: bool, computed_by: str, linear
) -> None:
    config, write, bound = CASES[case]
    reader = adopter(config)
    context = CONTEXT
    if computed_by == "native":
        context = replace(CONTEXT, kernels=choose_kernels("auto", CONTEXT.device, torch.float32).kernels)
    layer = linear(256, 160, bias=bias)
    tensors, weight = write(layer.weight)
    layer.weight.copy_(weight)
    if bias:
        tensors["bias"] = layer.bias
    adopted = reader.adopt("up_proj", tensors, nn.Linear(256, 160, bias=bias, device="meta"), context)
    for rows in (1, 3, 50):
        x = torch.randn(rows, 256, generator=torch.Generator().manual_seed(rows))
        assert relative_error(adopted(x), exact(layer, x)) < bound


@pytest.mark.parametrize(("bits", "packs"), [(4, True), (8, True), (8, False)])
def test_all_weights_may_have_one_zero_point(bits: int, packs: bool, linear) -> None:
    """It is stored as it is, whatever weights are: it was taken for one of each output, in words."""
    layer, half = linear(64, 32), 2 ** (bits - 1)
    low, high = layer.weight.min(), layer.weight.max()
    scale = (high - low) / (2 * half - 1)
    zero = (-half - low / scale).round()
    codes = (layer.weight / scale + zero).round().clamp(-half, half - 1)
    layer.weight.copy_((codes - zero) * scale)
    tensors = {"weight_scale": scale[None], "weight_zero_point": zero[None].to(torch.int8)}
    raised = packed((codes + half).long(), bits)
    tensors |= {"weight_packed": raised} if packs else {"weight": codes.to(torch.int8)}
    reader = adopter(compressed(num_bits=bits, strategy="tensor", symmetric=False))
    adopted = reader.adopt("up_proj", tensors, nn.Linear(64, 32, bias=False, device="meta"), CONTEXT)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    assert relative_error(adopted(x), exact(layer, x)) < 0.02


@pytest.mark.parametrize("shape", [(200, 130), (128, 64), (130, 300)])
def test_blocks_may_be_cut_short(shape: tuple[int, int], linear) -> None:
    layer = linear(shape[1], shape[0])
    tensors, weight = fp8_blocks(layer.weight)
    layer.weight.copy_(weight)
    adopted = adopter(CASES["fp8 blocks"][0]).adopt(
        "x", tensors, nn.Linear(*shape[::-1], bias=False), CONTEXT
    )
    x = torch.randn(7, shape[1])
    assert relative_error(adopted(x), exact(layer, x)) < 1e-5


def test_fp8_without_blocks_has_a_scale_for_each_layer_under_either_name(linear) -> None:
    """Mistral's checkpoints, as transformers writes them, were refused: `weight_scale` was missing."""
    layer = linear(96, 80)
    tensors, weight = fp8_layers(layer.weight)
    layer.weight.copy_(weight)
    x = torch.randn(3, 96, generator=torch.Generator().manual_seed(1))
    for name in ("weight_scale_inv", "weight_scale"):
        given = {**tensors, name: tensors["weight_scale_inv"]}
        if name == "weight_scale":
            del given["weight_scale_inv"]
        reader = adopter({"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"})
        adopted = reader.adopt("x", given, nn.Linear(96, 80, bias=False, device="meta"), CONTEXT)
        assert relative_error(adopted(x), exact(layer, x)) < 1e-5


def test_a_bias_of_zeros_is_dropped_where_the_model_has_none(linear) -> None:
    tensors, _ = gptq(linear().weight)
    like = nn.Linear(256, 96, bias=False, device="meta")
    assert adopter(GPTQ).adopt("x", {**tensors, "bias": torch.zeros(96)}, like, CONTEXT).bias is None
    with pytest.raises(ModelError, match=r"x\.bias is there, but config\.json gives this layer none"):
        adopter(GPTQ).adopt("x", {**tensors, "bias": torch.ones(96)}, like, CONTEXT)


# ------------------------------------------------------------------ whole checkpoints


def store(folder: Path, config: dict[str, Any], write: Callable[[Tensor], Written]) -> Path:
    """Random weights in `folder`, quantized in place; returns a folder with the weights they stand for."""
    shape = Shape(64, 2, 4, 2, 96, 160, max_positions=512, theta=10_000.0)
    write_random_checkpoint(folder, config_of(shape, "qwen2", dtype="float32"), seed=5)
    tensors, plain = load_file(folder / "model.safetensors"), folder.with_name(f"{folder.name}-plain")
    stored, dequantized = {}, dict(tensors)
    for name, value in tensors.items():
        layer = name.removesuffix(".weight")
        if layer.endswith("_proj"):
            written = write(value)
            stored.update({f"{layer}.{part}": tensor for part, tensor in written.tensors.items()})
            dequantized[name] = written.weight
        else:
            stored[name] = value
    plain.mkdir()
    save_file(dequantized, plain / "model.safetensors")
    (plain / "config.json").write_text((folder / "config.json").read_text())
    save_file(stored, folder / "model.safetensors")
    read = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**read, "quantization_config": config}))
    return plain


def loaded(folder: Path, quantization: str = "none") -> nn.Module:
    checkpoint = open_checkpoint(REGISTRY, str(folder))
    device = torch.device("cpu")
    return load_weights(REGISTRY, checkpoint, quantization, ComputeContext(device, torch.float32))


class Causal:
    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = (x.transpose(0, 1)[None] for x in (q, k, v))
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        return mixed[0].transpose(0, 1)


@torch.inference_mode()
def logits(module: nn.Module) -> Tensor:
    tokens = torch.arange(40) * 3 % 160
    return module.logits(module(tokens, torch.arange(40), Causal()))


@pytest.mark.parametrize("case", ["gptq 4 bits", "gptq desc_act", "awq", "fp8 blocks", "W8A8", "W4A16"])
def test_a_checkpoint_gives_the_logits_of_its_weights(case: str, tmp_path: Path) -> None:
    config, write, bound = CASES[case]
    plain = store(tmp_path / "model", config, write)
    assert relative_error(logits(loaded(tmp_path / "model")), logits(loaded(plain)).double()) < 3 * bound


def test_a_checkpoint_is_served_and_said_to_be_quantized(tmp_path: Path) -> None:
    store(tmp_path / "model", GPTQ, gptq)
    config = EngineConfig(model=str(tmp_path / "model"), kv_memory=2**24, device="cpu")
    summary = "\n".join(build_engine(config).ready.summary)
    assert "quantization gptq (the checkpoint's own)," in summary
    assert "quantized 14 of 15 linear layers" in summary
    assert "embeddings=true" not in summary, "a checkpoint that is quantized already takes no options"


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("fp8 layers", ["k_scale", "v_scale", "kv_scale", "k_proj.k_scale", "v_proj.v_scale"]),
        ("fp8 channels", ["k_scale", "v_scale", "q_scale", "prob_scale"]),
        ("W4A16", ["k_scale", "k_zero_point", "k_proj.output_scale", "v_proj.output_scale"]),
    ],
)
def test_scales_of_the_kv_cache_are_ignored_and_told(
    case: str, names: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such checkpoints were refused: the model had no place for the tensor."""
    config, write, _ = CASES[case]
    folder = tmp_path / "model"
    store(folder, config, write)
    plain = logits(loaded(folder))
    assert "KV cache" not in caplog.text
    scales = {f"model.layers.1.self_attn.{name}": torch.tensor([0.05]) for name in names}
    save_file({**load_file(folder / "model.safetensors"), **scales}, folder / "model.safetensors")
    assert torch.equal(logits(loaded(folder)), plain)
    assert f"{len(names)} scales of the KV cache in the checkpoint, such as {min(scales)}, are" in caplog.text


# ------------------------------------------------------------------ what is refused


def test_scales_of_the_kv_cache_are_no_part_of_other_formats(tmp_path: Path) -> None:
    folder, scale = tmp_path / "model", {"model.layers.1.self_attn.k_scale": torch.tensor([0.05])}
    store(folder, AWQ, awq)
    save_file({**load_file(folder / "model.safetensors"), **scale}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"self_attn\.k_scale', which the model has no place for"):
        loaded(folder)


def test_a_quantized_checkpoint_is_not_quantized_again(tmp_path: Path) -> None:
    store(tmp_path / "model", AWQ, awq)
    with pytest.raises(ConfigError, match="is quantized already, by awq; leave --quantization int8 out"):
        loaded(tmp_path / "model", "int8")


def test_a_method_that_no_quantizer_reads_is_refused(tmp_path: Path) -> None:
    store(tmp_path / "model", {"quant_method": "hqq"}, awq)
    with pytest.raises(ModelError, match="quant_method = 'hqq' is not supported"):
        loaded(tmp_path / "model")


@pytest.mark.parametrize("method", ["int8", "none"])
def test_a_quantizer_that_reads_nothing_is_refused_as_a_method(method: str, tmp_path: Path) -> None:
    store(tmp_path / "model", {"quant_method": method}, awq)
    with pytest.raises(ModelError, match=f"quant_method = '{method}' is not a format that can be read"):
        loaded(tmp_path / "model")


def test_a_format_does_not_quantize(random_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"'gptq' is how some checkpoints are stored.*choose int8"):
        loaded(random_model, "gptq")


def transformed(*locations: str) -> dict[str, Any]:
    """Settings with transforms at these places, as SpinQuant and QuIP are stored."""
    apply = [{"targets": ["re:.*down_proj$"], "location": location} for location in locations]
    return {
        **compressed(),
        "transform_config": {"config_groups": {"R4": {"type": "hadamard", "apply": apply}}},
    }


def targeted(targets: object) -> dict[str, Any]:
    config = compressed()
    config["config_groups"]["group_0"]["targets"] = targets
    return config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**GPTQ, "bits": 3}, "bits = 3; supported: 4, 8"),
        ({**GPTQ, "group_size": None}, "group_size = None; an integer is expected"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "checkpoint_format = 'marlin'; supported: gptq, gptq_v2"),
        ({**GPTQ, "dynamic": {"a": {}}}, "dynamic = .*not supported"),
        ({**AWQ, "version": "gemv"}, "version = 'gemv'; supported: gemm"),
        ({**AWQ, "bits": 8}, "bits = 8; supported: 4"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt = 'e5m2'; supported: e4m3"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size = .*two integers from 1"),
        ({"quant_method": "fp8", "weight_block_size": [2**40, 128]}, "two integers from 1 to 4,096"),
        (compressed(num_bits=2), "num_bits = 2; supported: 4, 8"),
        (compressed(type="float", num_bits=4), "num_bits = 4; supported: 8"),
        (compressed(strategy="tensor_group"), "strategy = 'tensor_group'; supported: tensor, channel, group"),
        (compressed(DYNAMIC, num_bits=4), "input_activations = .*only with weights of 8 bits"),
        (compressed(8), "input_activations = 8; an object or null is expected"),
        ({"quant_method": "compressed-tensors"}, "config_groups = None"),
        ({**compressed(), "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config = .*sparse"),
        (transformed("weight_input", "input"), r"transform_config: .* R4: apply: location = 'input'"),
        (transformed("output"), "location = 'output'; supported: weight_input, weight_output"),
        (transformed("k_cache"), "location = 'k_cache'"),
        (transformed("q_attn"), "location = 'q_attn'"),
        ({**compressed(), "transform_config": {"config_groups": {"R4": 4}}}, "transform_config = .*expected"),
        (targeted(["re:(("]), r"config_groups: group_0: targets = .*'\(\(' is no regular expression"),
        (targeted("Linear"), "config_groups: group_0: targets = 'Linear'; a list of names is expected"),
        ({**compressed(), "ignore": ["lm_head", "re:(("]}, r"config: ignore = .*'\(\(' is no regular expr"),
    ],
)
def test_settings_that_are_not_supported_are_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        adopter(config)
    assert "quantization_config" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("config", [transformed("weight_input", "weight_output"), transformed()])
def test_transforms_that_are_in_the_weights_already_are_passed_over(config: dict[str, Any], linear) -> None:
    """Transforms of activations are refused above: such checkpoints were served, and wrote nonsense."""
    written = int8_channels(linear().weight)
    adopted, plain = (
        adopter(each).adopt("up_proj", written.tensors, linear(), CONTEXT) for each in (config, compressed())
    )
    x = torch.ones(1, 256)
    assert torch.equal(adopted(x), plain(x))


@pytest.mark.parametrize("packed", [False, True])
def test_zero_points_beside_quantized_activations_are_refused(packed: bool) -> None:
    """Packed ones were read and left out."""
    plain = {"weight": torch.zeros(96, 256, dtype=torch.int8)}
    words = {"weight_packed": torch.zeros(96, 64, dtype=torch.int32)}
    zero = torch.zeros(24, 1, dtype=torch.int32) if packed else torch.zeros(96, 1, dtype=torch.int8)
    tensors = {
        **(words if packed else plain),
        "weight_scale": torch.ones(96, 1),
        "weight_zero_point": zero,
    }
    group = adopter(compressed(DYNAMIC, num_bits=8, strategy="channel", symmetric=False))
    with pytest.raises(ModelError, match="up_proj has zero points for weights and 8-bit activations"):
        group.adopt("up_proj", tensors, nn.Linear(256, 96, bias=False, device="meta"), CONTEXT)


def test_awq_without_zero_points_is_refused_by_its_setting(linear) -> None:
    """It was called damaged."""
    tensors, config = dict(awq(linear().weight).tensors), {**AWQ, "zero_point": False}
    adopter(config).adopt("up_proj", tensors, nn.Linear(256, 96, bias=False, device="meta"), CONTEXT)
    del tensors["qzeros"]
    with pytest.raises(ModelError, match="zero_point = False; up_proj has no qzeros"):
        adopter(config).adopt("up_proj", tensors, nn.Linear(256, 96, bias=False, device="meta"), CONTEXT)


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("awq", lambda t: t.pop("scales"), r"up_proj\.scales is missing"),
        ("gptq 4 bits", lambda t: t.pop("qzeros"), r"up_proj\.qzeros is missing"),
        ("W8A8", lambda t: t.update(weight_scale=torch.ones(3)), r"weight_scale has shape \[3\], for 96"),
        ("W8A8", lambda t: t.update(weight=t["weight"].float()), "weight is float32, int8 is expected"),
        ("W4A16", lambda t: t.update(weight_packed=t["weight_packed"][:, :5]), r"weight_packed has shape"),
        ("W4A16", lambda t: t.update(surplus=torch.ones(3)), r"up_proj\.surplus, .* has no place"),
        (
            "fp8 blocks",
            lambda t: t["weight"].view(torch.uint8).fill_(127),
            "weight holds NaN",
        ),
        (
            "fp8 blocks",
            lambda t: t["weight_scale_inv"].fill_(torch.nan),
            "weight_scale_inv holds numbers that",
        ),
        ("gptq desc_act", lambda t: t["g_idx"].fill_(0), "g_idx does not put 32 inputs into each group"),
    ],
)
def test_damaged_tensors_are_named(
    case: str, change: Callable[[dict[str, Tensor]], Any], message: str, linear
) -> None:
    config, write, _ = CASES[case]
    tensors = dict(write(linear().weight).tensors)
    change(tensors)
    with pytest.raises(ModelError, match=message) as error:
        adopter(config).adopt("up_proj", tensors, nn.Linear(256, 96, bias=False, device="meta"), CONTEXT)
    assert "\n" not in str(error.value)


def test_groups_that_no_kernel_knows_are_refused(linear) -> None:
    tensors, _ = gptq(linear().weight, group=16)
    with pytest.raises(ModelError, match=r"up_proj has 4-bit weights of 96 outputs in groups of 16"):
        adopter({**GPTQ, "group_size": 16}).adopt("up_proj", tensors, nn.Linear(256, 96, bias=False), CONTEXT)


UNEVEN = {
    "gptq 4 bits": ({**GPTQ, "group_size": 128}, {"qweight": (24, 96), "qzeros": (2, 12), "scales": (2, 96)}),
    "gptq 8 bits": (
        {**GPTQ, "bits": 8, "group_size": 128},
        {"qweight": (48, 96), "qzeros": (2, 24), "scales": (2, 96)},
    ),
    "awq": ({**AWQ, "group_size": 128}, {"qweight": (192, 12), "qzeros": (2, 12), "scales": (2, 96)}),
    "W4A16": (
        compressed(num_bits=4, strategy="group", group_size=128),
        {"weight_packed": (96, 24), "weight_scale": (96, 2)},
    ),
}
"""Settings, and the shapes of tensors for 192 inputs and 96 outputs."""


@pytest.mark.parametrize("case", UNEVEN)
def test_groups_that_are_not_all_as_large_are_refused(case: str) -> None:
    """Of 192 inputs in groups of 128, the second had 96 inputs, as the first: other weights, silently."""
    config, shapes = UNEVEN[case]
    tensors = {
        name: torch.ones(shape) if "scale" in name else torch.zeros(shape, dtype=torch.int32)
        for name, shape in shapes.items()
    }
    with pytest.raises(ModelError, match=r"up_proj has 192 inputs in groups of 128"):
        adopter(config).adopt("up_proj", tensors, nn.Linear(192, 96, bias=False, device="meta"), CONTEXT)


def test_weights_that_are_said_to_be_dense_are_read(linear) -> None:
    layer, written = linear(), int8_channels(linear().weight)
    dense = adopter({**compressed(), "sparsity_config": {"format": "dense", "targets": []}})
    x = torch.ones(1, 256)
    plain = adopter(compressed()).adopt("up_proj", written.tensors, layer, CONTEXT)(x)
    assert torch.equal(dense.adopt("up_proj", written.tensors, layer, CONTEXT)(x), plain)


SPECIFIC_FIRST = ["mlp.down_proj", "re:.*down_proj$", "Linear"]


@pytest.mark.parametrize("order", list(itertools.permutations(SPECIFIC_FIRST)), ids=" ".join)
def test_a_layers_name_goes_before_an_expression_and_that_before_a_class(
    order: tuple[str, ...], linear
) -> None:
    """The first group that named a layer was taken, so that W4A16 of some layers beside W8A8 was refused."""
    schemes = {
        "mlp.down_proj": compressed(num_bits=4, strategy="group", group_size=32),
        "re:.*down_proj$": compressed(num_bits=4, strategy="group", group_size=64),
        "Linear": compressed(DYNAMIC),
    }
    groups = {
        target: {**schemes[target]["config_groups"]["group_0"], "targets": [target]} for target in order
    }
    reader = adopter({**compressed(), "config_groups": groups})
    written = {
        "mlp.down_proj": pack_quantized(linear().weight),
        "self_attn.down_proj": pack_quantized(linear().weight, group=64),
        "mlp.up_proj": int8_channels(linear().weight),
    }
    for name, (tensors, weight) in written.items():
        layer, x = linear(), torch.ones(2, 256)
        layer.weight.copy_(weight)
        assert relative_error(reader.adopt(name, tensors, linear(), CONTEXT)(x), exact(layer, x)) < 0.05


@pytest.mark.parametrize("before", ["language_model.model.", "model.language_model."])
@pytest.mark.parametrize("begin", ["", "re:"])
def test_groups_may_have_the_names_of_a_model_of_images(before: str, begin: str, linear) -> None:
    """Of which the text model is served, by names of its own: another group was taken, or none was found."""
    layer, x = linear(), torch.ones(2, 256)
    groups = {
        "named": {
            **compressed(num_bits=4, strategy="group", group_size=64)["config_groups"]["group_0"],
            "targets": [f"{begin}{before}layers.0.mlp.up_proj"],
        },
        "others": compressed(DYNAMIC)["config_groups"]["group_0"],
    }
    reader = adopter({**compressed(), "config_groups": groups})
    tensors, weight = pack_quantized(layer.weight, group=64)
    layer.weight.copy_(weight)
    adopted = reader.adopt("model.layers.0.mlp.up_proj", tensors, linear(), CONTEXT)
    assert relative_error(adopted(x), exact(layer, x)) < 0.05


def test_a_layer_that_no_group_names_is_refused(linear) -> None:
    config = targeted(["re:.*self_attn.*"])
    with pytest.raises(ModelError, match=r"mlp\.up_proj is stored quantized, but no group"):
        adopter(config).adopt("mlp.up_proj", int8_channels(linear().weight).tensors, linear(), CONTEXT)


def parts_of(case: str) -> list[str]:
    """What the layout has for a layer and cannot do without."""
    tensors = CASES[case][1](torch.ones(96, 256)).tensors
    return [part for part in tensors if part not in ("g_idx", "weight_shape")]


@pytest.mark.parametrize(("case", "part"), [(case, part) for case in CASES for part in parts_of(case)])
def test_every_tensor_that_is_missing_or_of_the_wrong_kind_is_named(case: str, part: str, linear) -> None:
    config, write, _ = CASES[case]
    tensors = dict(write(linear().weight).tensors)
    good = tensors.pop(part)
    wrong = torch.float64 if good.dtype.is_floating_point else torch.int16
    damaged = {
        "is missing": tensors,
        "has shape": {**tensors, part: good[:-1]},
        "is expected": {**tensors, part: good.to(wrong)},
    }
    for message, given in damaged.items():
        with pytest.raises(ModelError, match=rf"^up_proj\.{part} .*{message}") as error:
            adopter(config).adopt("up_proj", given, nn.Linear(256, 96, bias=False, device="meta"), CONTEXT)
        assert "\n" not in str(error.value)


SCALES = ("scales", "weight_scale", "weight_scale_inv")


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
@pytest.mark.parametrize("case", CASES)
def test_scales_that_are_no_numbers_are_named(case: str, number: float, linear) -> None:
    config, write, _ = CASES[case]
    tensors = dict(write(linear().weight).tensors)
    part = next(part for part in SCALES if part in tensors)
    tensors[part].view(-1)[-1] = number
    with pytest.raises(ModelError, match=rf"^up_proj\.{part} holds numbers that are not finite"):
        adopter(config).adopt("up_proj", tensors, nn.Linear(256, 96, bias=False, device="meta"), CONTEXT)


@pytest.mark.parametrize(
    ("kind", "size", "at"),
    [("q8_0", 34, 0), ("q4_0", 18, 0), ("q4_k", 144, 0), ("q4_k", 144, 2), ("q6_k", 210, 208)],
)
def test_scales_of_blocks_that_are_no_numbers_are_named(kind: str, size: int, at: int) -> None:
    """A plugin of Turnout was blamed for those of the first layer of a shape; those of others were served."""
    reader, inputs = REGISTRY.create("quantization", "gguf").adopter({}), BLOCK_TYPES[kind].inputs
    like = nn.Linear(2 * inputs, 32, bias=False, device="meta")
    blocks = torch.zeros(32, 2 * size, dtype=torch.uint8)
    assert not reader.adopt("up_proj", {kind: blocks}, like, CONTEXT)(torch.ones(1, 2 * inputs)).any()
    for number in (torch.nan, -torch.inf):
        damaged = blocks.clone()
        damaged[3, size + at : size + at + 2] = torch.tensor([number]).half().view(torch.uint8)
        with pytest.raises(ModelError, match=rf"^up_proj\.{kind} holds scales that are not finite"):
            reader.adopt("up_proj", {kind: damaged}, like, CONTEXT)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_bias_that_is_no_number_is_named(number: float, linear) -> None:
    tensors = {**gptq(linear().weight).tensors, "bias": torch.full([96], number)}
    with pytest.raises(ModelError, match=r"^up_proj\.bias holds numbers that are not finite"):
        adopter(GPTQ).adopt("up_proj", tensors, nn.Linear(256, 96, device="meta"), CONTEXT)


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_that_is_cut_short_is_refused_with_its_tensors(case: str, tmp_path: Path) -> None:
    config, write, _ = CASES[case]
    folder = tmp_path / "model"
    store(folder, config, write)
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(file.seek(0, 2) - 1)
    with pytest.raises(ModelError, match=r"model\.safetensors is cut short in the tensor '[\w.]+';") as error:
        loaded(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", ["weight_scale", "weight"])
def test_a_checkpoint_that_lacks_a_tensor_is_refused_by_name(missing: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    store(folder, compressed(), int8_channels)
    tensors = load_file(folder / "model.safetensors")
    del tensors[f"model.layers.1.mlp.up_proj.{missing}"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        loaded(folder)


def test_eight_bit_weights_without_a_config_are_not_taken_for_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    store(folder, {"quant_method": "fp8"}, fp8_channels)
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        key: value for key, value in load_file(folder / "model.safetensors").items() if "scale" not in key
    }
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(
        ModelError, match=r"is torch\.float8_e4m3fn, a floating point type is expected, or scales"
    ):
        loaded(folder)


# ------------------------------------------------------------------ another writer


PRESETS = {"W8A8": 0.05, "W8A16": 0.01, "W4A16": 0.01, "W4A16_ASYM": 0.01, "FP8_DYNAMIC": 1e-5}


@pytest.mark.parametrize("preset", PRESETS)
def test_what_compressed_tensors_itself_writes_is_read(preset: str, linear) -> None:
    """Where it is installed: it is not needed for anything else."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams

    scheme = preset_name_to_scheme(preset, ["Linear"])
    layer, args = linear(256, 160), scheme.weights
    shaped = layer.weight.view(160, -1, args.group_size or 256)
    scale, zero = calculate_qparams(shaped.amin(-1), shaped.amax(-1), args)
    names = {"W8A8": "int-quantized", "FP8_DYNAMIC": "float-quantized"}
    compressor = BaseCompressor.load_from_registry(names.get(preset, "pack-quantized"))
    state = {"weight": layer.weight.clone(), "weight_scale": scale, "weight_zero_point": zero}
    stored = compressor.compress(state, scheme)
    layer.weight.copy_(compressor.decompress(dict(stored), scheme)["weight"])
    config = QuantizationConfig(config_groups={"group_0": scheme}).model_dump(mode="json")
    adopted = adopter(config).adopt(
        "up_proj", stored, nn.Linear(256, 160, bias=False, device="meta"), CONTEXT
    )
    x = torch.randn(5, 256)
    assert relative_error(adopted(x), exact(layer, x)) < PRESETS[preset]
