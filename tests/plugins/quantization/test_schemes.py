"""Each scheme computes what its layer did, within a bound, and says what it cannot do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from exactness import exact, relative_error
from torch import Tensor, nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import choose_kernels
from turnout.plugins.quantization.layers.fp8 import decode_e4m3
from turnout.plugins.quantization.layers.int8 import Int8Linear, activation_bits
from turnout.plugins.quantization.schemes.encoding import to_e4m3, to_int4, to_int8
from turnout.plugins.quantization.schemes.scheme import LinearScheme

REGISTRY = Registry.load()
BOUNDS = {
    "int8": 0.08,
    "int8wo": 0.025,
    "int4wo": 0.2,
    "int4wo:group_size=32": 0.16,
    "fp8": 0.045,
    "fp8wo": 0.045,
}
"""Relative errors, in the Euclidean norm: a step of the codes is 1/127, 1/15 or 1/8 of what they reach."""
BITS = {"int8": 8, "int8wo": 8, "int4wo": 4, "int4wo:group_size=32": 4, "fp8": 8, "fp8wo": 8}
ROWS = [1, 5, 40]
"""Few and many: some kernels are for one or the other."""


Schemes = Callable[[str], LinearScheme]


@pytest.fixture(params=["native", "torch"])
def context(request: pytest.FixtureRequest) -> ComputeContext:
    """Computing by compiled kernels or PyTorch's."""
    kernels, note = choose_kernels("auto", torch.device("cpu"), torch.float32)
    if kernels is None and request.param == "native":
        pytest.skip(note)

    return ComputeContext(torch.device("cpu"), torch.float32, kernels if request.param == "native" else None)


@pytest.fixture
def scheme() -> Schemes:
    def make(spec: str) -> LinearScheme:
        made = REGISTRY.create("quantization", spec)
        assert isinstance(made, LinearScheme)
        return made

    return make


def inputs(rows: int, width: int = 256, seed: int = 1) -> Tensor:
    """Rows of different sizes, with outliers: activations have them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator) * torch.logspace(-2, 2, rows)[:, None]
    x[:, 3] *= 6
    return x


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("spec", BOUNDS)
def test_outputs_are_within_the_bound_of_float64(
    scheme: Schemes, context: ComputeContext, spec: str, bias: bool, rows: int, linear
) -> None:
    layer, x = linear(bias=bias), inputs(rows)
    expected = exact(layer, x)
    converted = scheme(spec).convert(layer, context)
    for row, wanted in zip(converted(x), expected, strict=True):
        assert relative_error(row, wanted) < BOUNDS[spec]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spec", BOUNDS)
def test_outputs_have_the_dtype_of_inputs(
    scheme: Schemes, context: ComputeContext, spec: str, dtype: torch.dtype, linear
) -> None:
    layer, x = linear(bias=True), inputs(3).to(dtype)
    expected = exact(layer, x)
    out = scheme(spec).convert(layer.to(dtype), context)(x)
    assert out.dtype == dtype
    assert relative_error(out, expected) < BOUNDS[spec] + 0.01


@pytest.mark.parametrize("spec", BOUNDS)
def test_no_tokens_give_no_outputs(scheme: Schemes, context: ComputeContext, spec: str, linear) -> None:
    assert scheme(spec).convert(linear(), context)(torch.empty(0, 256)).shape == (0, 96)


@pytest.mark.parametrize("spec", BOUNDS)
def test_a_row_does_not_depend_on_the_others(
    scheme: Schemes, context: ComputeContext, spec: str, linear
) -> None:
    """What comes of a request must not depend on the batch: but for the order of additions, that is."""
    layer, x = scheme(spec).convert(linear(), context), inputs(40)
    alone, together = torch.cat([layer(row[None]) for row in x]), layer(x)
    # Where one order of additions rounds up to a bfloat16 and the other down, they are 1/256 apart.
    differing = (alone - together).abs() > 1e-5 * together.abs().amax(1, keepdim=True)
    assert differing.float().mean() < 0.01
    assert relative_error(alone, together.double()) < 1e-3


@pytest.mark.parametrize("spec", BOUNDS)
def test_weights_take_the_bytes_they_should(
    scheme: Schemes, context: ComputeContext, spec: str, linear
) -> None:
    from turnout.runner.memory.budget import weight_bytes

    layer = scheme(spec).convert(linear(1024, 512), context)
    assert weight_bytes(layer) <= 1024 * 512 * BITS[spec] / 8 * 1.3


@pytest.mark.parametrize(("width", "outputs"), [(7, 5), (33, 64), (64, 17), (40, 48)])
@pytest.mark.parametrize("spec", ["int8", "int8wo", "fp8"])
def test_odd_shapes_are_taken(
    scheme: Schemes, context: ComputeContext, spec: str, width: int, outputs: int, linear
) -> None:
    """PyTorch's kernel for 8-bit weights reads beyond their end where the width is odd, and crashes."""
    layer, x = linear(width, outputs), inputs(2, width)
    expected = exact(layer, x)
    assert relative_error(scheme(spec).convert(layer, context)(x), expected) < 2 * BOUNDS[spec]


@pytest.mark.parametrize(("width", "outputs"), [(48, 64), (64, 24), (33, 16)])
def test_int4_leaves_shapes_that_it_cannot_pack(scheme: Schemes, width: int, outputs: int, linear) -> None:
    assert not scheme("int4wo").wants("layer", linear(width, outputs))


def test_int4_makes_groups_smaller_where_the_width_asks_for_it(
    scheme: Schemes, context: ComputeContext, linear
) -> None:
    assert scheme("int4wo").convert(linear(832, 64), context)(torch.ones(1, 832)).shape == (1, 64)
    assert scheme("int4wo").group(832) == 64  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", ["int8", "int8wo", "int4wo", "fp8", "fp8wo"])
def test_the_head_is_left_unless_it_is_asked_for(scheme: Schemes, spec: str, linear) -> None:
    assert not scheme(spec).wants("lm_head", linear())
    assert scheme(spec).wants("model.layers.0.mlp.up_proj", linear())
    assert scheme(f"{spec}:lm_head=true").wants("lm_head", linear())


@pytest.mark.parametrize("spec", ["int8", "int8wo", "int4wo", "fp8", "fp8wo"])
def test_a_device_without_kernels_is_refused_by_name(
    scheme: Schemes, context: ComputeContext, spec: str
) -> None:
    with pytest.raises(ConfigError, match=f"quantization '{spec}' has no kernels for meta.*--device cpu"):
        scheme(spec).convert(nn.Linear(64, 64, device="meta"), context)


@pytest.mark.parametrize("spec", ["int4wo:group_size=100", "int4wo:bits=3", "int8:lm_head=perhaps"])
def test_wrong_options_are_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match=f"quantization '{spec.partition(':')[0]}': "):
        REGISTRY.create("quantization", spec)


# ------------------------------------------------------------------ numbers


def test_products_do_not_overflow() -> None:
    """Without VNNI, a CPU's sums of two products of 8-bit numbers are cut off at 16 bits."""
    for sign in (1, -1):
        codes = torch.full((64, 256), sign * 127, dtype=torch.int8)
        x = torch.ones(3, 256)
        out = Int8Linear(codes, torch.ones(64), None)(x)
        torch.testing.assert_close(out, torch.full((3, 64), sign * 127.0 * 256))
    assert activation_bits() in (7, 8)


def test_a_token_of_zeros_gives_zeros(scheme: Schemes, context: ComputeContext, linear) -> None:
    layer = scheme("int8").convert(linear(), context)
    assert torch.equal(layer(torch.zeros(2, 256)), torch.zeros(2, 96))


def test_rows_of_zeros_stay_zeros() -> None:
    zeros = torch.zeros(32, 64)
    for codes in (to_int8(zeros), to_e4m3(zeros)):
        assert not (codes.codes.float() * codes.scale[:, None]).any()
    codes, scale, zero = to_int4(zeros, 32)
    assert not ((codes.float() - zero.repeat_interleave(32, 1)) * scale.repeat_interleave(32, 1)).any()


def test_every_number_of_e4m3_is_decoded() -> None:
    codes = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn)
    expected, numbers = codes.float(), ~codes.float().isnan()
    assert numbers.sum() == 254
    assert torch.equal(decode_e4m3(codes)[numbers], expected[numbers])


def test_int4_never_loses_to_the_whole_range(linear) -> None:
    """Ranges are shrunk only where that helps."""
    weight = linear(256, 96).weight
    codes, scale, zero = to_int4(weight, 128)
    found = (codes.float() - zero.repeat_interleave(128, 1)) * scale.repeat_interleave(128, 1)
    grouped = weight.view(96, 2, 128)
    step = (grouped.amax(-1, keepdim=True) - grouped.amin(-1, keepdim=True)) / 15
    low = grouped.amin(-1, keepdim=True)
    plain = ((grouped - low) / step).round() * step + low
    assert (found - weight).square().sum() <= 1.01 * (plain.view(96, 256) - weight).square().sum()


def part(layer: nn.Linear, outputs: slice, inputs: slice) -> nn.Linear:
    """A device's share of a layer, as tensor parallelism cuts it."""
    weight = layer.weight[outputs, inputs]
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight = nn.Parameter(weight.clone(), requires_grad=False)
    return made


EVERYTHING = slice(None)


@pytest.mark.parametrize("spec", BOUNDS)
def test_shares_of_the_outputs_side_by_side_are_the_layer(
    scheme: Schemes, context: ComputeContext, spec: str, linear
) -> None:
    """Cut first, then converted: scales belong to outputs, or to less, so that nothing is lost by cutting."""
    layer, x = linear(bias=False), inputs(5)
    shares = [
        scheme(spec).convert(part(layer, cut, EVERYTHING), context) for cut in (slice(0, 32), slice(32, 96))
    ]
    whole = scheme(spec).convert(layer, context)(x)
    torch.testing.assert_close(torch.cat([share(x) for share in shares], dim=1), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", BOUNDS)
def test_shares_of_the_inputs_add_up_to_the_layer(
    scheme: Schemes, context: ComputeContext, spec: str, linear
) -> None:
    """Each share has scales of its own, of fewer weights: the sum is within the bound of the whole."""
    layer, x = linear(bias=False), inputs(5)
    cuts = (slice(0, 128), slice(128, 256))
    added = sum(scheme(spec).convert(part(layer, EVERYTHING, cut), context)(x[:, cut]) for cut in cuts)
    for row, wanted in zip(added, exact(layer, x), strict=True):
        assert relative_error(row, wanted) < BOUNDS[spec]
