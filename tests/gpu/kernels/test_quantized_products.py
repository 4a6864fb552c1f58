"""Products with quantized weights equal those of the decoded weights in float64, whatever the shapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.plugins.quantization.gpu import products
from turnout.plugins.quantization.gpu.factory import GpuLayerFactory
from turnout.plugins.quantization.gpu.layers import CodesLinear
from turnout.plugins.quantization.layers import factory
from turnout.plugins.quantization.schemes import encoding

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}
"""Of the largest output."""

SHAPES = [(1, 40, 64), (3, 33, 100), (70, 144, 96)]
"""Rows, outputs, inputs."""


def draw(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(device, dtype)


def check(layer: nn.Module, weight: Tensor, x: Tensor, bias: Tensor | None, tolerance: float) -> None:
    """weight: what the layer's codes stand for."""
    expected = x.double() @ weight.double().t()
    if bias is not None:
        expected += bias.double()
    found = layer(x)
    assert found.dtype == x.dtype
    assert (found.double() - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_a_scale_for_each_output(
    kind: str, rows: int, outputs: int, inputs: int, dtype: torch.dtype, device: torch.device
) -> None:
    encode = encoding.to_int8 if kind == "int8" else encoding.to_e4m3
    codes, scale = encode(draw((outputs, inputs), torch.float32, device))
    bias = draw((outputs,), dtype, device) if rows > 1 else None
    make = (
        GpuLayerFactory.int8_weights if kind == "int8" else lambda *parts: GpuLayerFactory.fp8(*parts, False)
    )
    x = draw((rows, inputs), dtype, device)
    check(make(codes, scale, bias), codes.float() * scale[:, None], x, bias, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "group"), [(1, 32), (5, 64), (70, 128), (2, 96)])
def test_four_bits_in_groups(rows: int, group: int, dtype: torch.dtype, device: torch.device) -> None:
    outputs, inputs = 48, 4 * group
    codes, scale, zero = encoding.to_int4(draw((outputs, inputs), torch.float32, device), group)
    wide = (codes.view(outputs, -1, group).float() - zero[..., None].float()) * scale[..., None]
    bias = draw((outputs,), dtype, device)
    layer = GpuLayerFactory.int4(codes, scale, (8 - zero.float()) * scale, bias, None)
    check(layer, wide.flatten(1), draw((rows, inputs), dtype, device), bias, TOLERANCE[dtype])


@pytest.mark.parametrize("groups", [1, 3])
def test_eight_bits_in_groups_of_inputs_in_another_order(groups: int, device: torch.device) -> None:
    outputs, inputs = 40, 96
    codes = torch.randint(0, 256, (outputs, inputs), dtype=torch.uint8).to(device)
    scale, offset = draw((2, outputs, groups), torch.float32, device)
    wide = codes.view(outputs, groups, -1).float() * scale[..., None] + offset[..., None]
    order = torch.randperm(inputs).to(device)
    weight = torch.empty(outputs, inputs, device=device)
    weight[:, order] = wide.flatten(1)
    layer = GpuLayerFactory.int8_groups(codes, scale, offset, None, order)
    check(layer, weight, draw((3, inputs), torch.float32, device), None, 1e-5)


def test_fp8_in_blocks(device: torch.device) -> None:
    """Of which the last ones are cut off, of outputs as of inputs."""
    codes = draw((70, 80), torch.float32, device).to(torch.float8_e4m3fn)
    scale = draw((3, 3), torch.float32, device).abs()
    wide = codes.float() * scale.repeat_interleave(32, 0)[:70].repeat_interleave(32, 1)[:, :80]
    layer = GpuLayerFactory.fp8_blocks(codes, scale, (32, 32), None)
    check(layer, wide, draw((3, 80), torch.float32, device), None, 1e-5)


@pytest.mark.parametrize(
    ("rows", "outputs", "inputs"), [SHAPES[0], pytest.param(*SHAPES[1], marks=pytest.mark.slow), SHAPES[2]]
)
@pytest.mark.parametrize("kind", ["int8", "fp8"])
@pytest.mark.parametrize(
    ("many", "dtype"),
    [
        pytest.param(False, torch.float32, id="few outputs-float32"),
        pytest.param(True, torch.bfloat16, id="many outputs-bfloat16"),
        pytest.param(False, torch.bfloat16, id="few outputs-bfloat16", marks=pytest.mark.slow),
        pytest.param(True, torch.float32, id="many outputs-float32", marks=pytest.mark.slow),
    ],
)
def test_activations_in_eight_bits(
    many: bool,
    kind: str,
    rows: int,
    outputs: int,
    inputs: int,
    dtype: torch.dtype,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The product of the codes is exact, so all that is lost is lost in rounding them."""
    if many:
        monkeypatch.setattr(products, "PROGRAMS", 1)
    if kind == "fp8" and device.type == "cuda" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this card has no fp8")
    encode = encoding.to_int8 if kind == "int8" else encoding.to_e4m3
    codes, scale = encode(draw((outputs, inputs), torch.float32, device))
    bias = draw((outputs,), dtype, device) if rows > 1 else None
    x = draw((rows, inputs), dtype, device)
    x[0] *= 1e-3  # a row of its own scale
    x_codes, x_scale = products.quantize(x, kind)
    stored = x_codes if kind == "int8" else x_codes.view(torch.float8_e4m3fn)
    seen = stored.float() * x_scale[:, None]
    step = {"int8": 1 / 254, "fp8": 1 / 16}[kind]
    assert ((seen - x.float()).abs() <= x.float().abs().amax(1, keepdim=True) * step * 1.01).all()
    layer = CodesLinear(kind, codes.view(torch.int8), scale, bias)
    expected = seen.double() @ (codes.float() * scale[:, None]).double().t()
    expected += 0 if bias is None else bias.double()
    tolerance = max(TOLERANCE[dtype], 2**-10 if kind == "fp8" else 0)  # a Hopper sums 14 bits of fp8
    assert (layer(x).double() - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("inputs", [1040, 2048])
@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_one_row_of_many_inputs(kind: str, inputs: int, device: torch.device) -> None:
    """By a kernel of its own, which multiplies words of four codes; sums of int8 have the bits of tiles."""
    if kind == "fp8" and device.type == "cuda" and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this card has no fp8")
    encode = encoding.to_int8 if kind == "int8" else encoding.to_e4m3
    codes, scale = encode(draw((33, inputs), torch.float32, device))
    x, bias = draw((2, inputs), torch.bfloat16, device), draw((33,), torch.bfloat16, device)
    layer = CodesLinear(kind, codes.view(torch.int8), scale, bias)
    tiles, row = layer(x)[:1], layer(x[:1])
    assert row.equal(tiles) if kind == "int8" else (row - tiles).abs().max() <= 2**-7 * tiles.abs().max()


@pytest.mark.parametrize("group", [32, pytest.param(128, marks=pytest.mark.slow)])
def test_one_row_of_many_groups(group: int, device: torch.device) -> None:
    codes, scale, zero = encoding.to_int4(draw((21, 40 * group), torch.float32, device), group)
    layer = GpuLayerFactory.int4(codes, scale, (8 - zero.float()) * scale, None, None)
    x = draw((2, 40 * group), torch.float32, device)
    assert (layer(x[:1]) - layer(x)[:1]).abs().max() <= 1e-5 * layer(x).abs().max()


def test_inputs_cut_into_parts_give_the_same(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = draw((33, 1000), torch.float32, device), draw((2, 1000), torch.float32, device)
    bias = draw((33,), torch.float32, device)
    whole, parted = [], []
    for found, parts in ((whole, 1), (parted, 8)):
        monkeypatch.setattr(products, "MOST_PARTS", parts)
        monkeypatch.setattr(products, "FEWEST_STEPS", 1)
        int4 = encoding.to_int4(weight[:, :960].contiguous(), 32)
        found += [
            GpuLayerFactory.int8(*encoding.to_int8(weight), bias)(x),
            GpuLayerFactory.int8_weights(*encoding.to_int8(weight), bias)(x),
            GpuLayerFactory.int4(int4.codes, int4.scale, int4.scale, bias, None)(x[:, :960]),
        ]
    assert whole[0].equal(parted[0])
    for one, other in zip(whole, parted, strict=True):  # which are added up in another order
        assert (one - other).abs().max() <= 2e-6 * one.abs().max()


def test_a_row_does_not_depend_on_those_beside_it(device: torch.device) -> None:
    codes, scale = encoding.to_int8(draw((48, 640), torch.float32, device))
    x = draw((50, 640), torch.float32, device)
    layer = GpuLayerFactory.int8(codes, scale, None)
    assert layer(x)[:1].equal(layer(x[:1]))


@pytest.mark.parametrize("spec", ["int8", "int8wo", "int4wo", "fp8", "fp8wo"])
def test_every_scheme_has_a_layer_for_a_gpu(
    spec: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which only the device of the weights decides; here it is pretended."""
    monkeypatch.setattr(factory, "_on_cpu", lambda codes: False)
    linear = nn.Linear(128, 64, device=device)
    with torch.inference_mode():
        layer = (
            Registry.load()
            .create("quantization", spec)
            .convert(linear, ComputeContext(device, torch.float32))
        )
        x = torch.randn(3, 128, device=device)
        error = (layer(x) - linear(x)).norm() / linear(x).norm()
    assert type(layer).__module__.endswith("gpu.layers") and error < 0.1


@pytest.mark.usefixtures("products_in_order")
@pytest.mark.parametrize("spec", ["int8", "int8wo", "int4wo", "fp8wo"])
def test_layers_that_read_the_same_input_become_one(
    spec: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factory, "_on_cpu", lambda codes: False)
    monkeypatch.setattr(products, "MOST_PARTS", 1)  # into how many parts inputs are cut depends on outputs
    scheme = Registry.load().create("quantization", spec)
    linears = [nn.Linear(128, outputs, bias=outputs != 32, device=device) for outputs in (64, 32, 48)]
    with torch.inference_mode():
        layers = [scheme.convert(linear, ComputeContext(device, torch.float32)) for linear in linears]
        joint, x = layers[0].join(layers[1:]), torch.randn(3, 128, device=device)
        assert joint(x).equal(torch.cat([layer(x) for layer in layers], dim=1))
        assert joint.out_features == 144 and type(joint) is type(layers[0])


def test_layers_that_do_not_go_together_stay_as_they_are(device: torch.device) -> None:
    codes, scale = torch.zeros(32, 64, dtype=torch.int8, device=device), torch.ones(32, device=device)
    both, alone = GpuLayerFactory.int8(codes, scale, None), GpuLayerFactory.int8_weights(codes, scale, None)
    grouped = torch.zeros(32, 64, dtype=torch.uint8, device=device)
    scales, order = torch.ones(32, 2, device=device), torch.arange(64, device=device)
    ordered = GpuLayerFactory.int8_groups(grouped, scales, scales, None, order)
    for one, other in [(both, alone), (alone, both), (ordered, ordered), (both, nn.Linear(64, 32))]:
        assert one.join([other]) is None


def test_groups_that_no_program_takes_are_refused(device: torch.device) -> None:
    codes = torch.zeros(16, 40, dtype=torch.uint8, device=device)
    scale = torch.ones(16, 2, device=device)
    with pytest.raises(ModelError, match="groups of 20 inputs are not supported on a GPU"):
        GpuLayerFactory.int4(codes, scale, scale, None, None)
