"""Compiled linear layers of 8 and 4 bits compute what their weights stand for, within rounding of inputs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from turnout.kernels import CpuKernels
from turnout.kernels.integers import IntegerKernels, IntegerWeights, Precision, adds_integers, magnitudes
from turnout.plugins.quantization.schemes.encoding import to_int8

ROWS = [1, 2, 3, 5, 6, 7, 13, 31, 97, 200]
SHAPES = [(64, 160), (300, 33), (513, 7), (256, 16), (7, 1), (1, 1), (1032, 48)]
GROUPED = [(64, 160, 32), (256, 33, 128), (512, 7, 256), (96, 1, 32), (832, 48, 64)]
EIGHT = [Precision.W8A8, Precision.W8A16]


@pytest.fixture(scope="module")
def kernels(variant_kernels: CpuKernels) -> IntegerKernels:
    return variant_kernels.integers


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def integers(low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high + 1, shape, generator=torch.Generator().manual_seed(3))


def assert_close(found: Tensor, x: Tensor, weight: Tensor, levels: int) -> None:
    """Each activation is off by half a unit at most, and sums by float32's rounding."""
    unit = x.double().abs().amax(1, keepdim=True) / levels
    expected = x.double() @ weight.t()
    bound = unit / 2 * weight.abs().sum(1) + 1e-5 * (x.double().abs() @ weight.abs().t()) + 1e-6
    assert bool(((found.double() - expected).abs() <= bound).all())


def eight_bits(
    kernels: IntegerKernels, inputs: int, outputs: int, precision: Precision = Precision.W8A16
) -> tuple[IntegerWeights, Tensor, Tensor]:
    """Packed, and the weight in float64, and its bias."""
    codes, scale, bias = (
        integers(-127, 127, outputs, inputs).to(torch.int8),
        normal(outputs, 1),
        normal(outputs),
    )
    return kernels.pack(precision, codes, scale, None, bias), codes.double() * scale.double(), bias.double()


def four_bits(
    kernels: IntegerKernels, inputs: int, outputs: int, group: int
) -> tuple[IntegerWeights, Tensor]:
    """Packed, and the weight in float64."""
    codes = integers(0, 15, outputs, inputs).to(torch.uint8)
    scale, offset = (normal(outputs, inputs // group, seed=seed).bfloat16().float() for seed in (0, 1))
    weight = (codes.double() - 8) * scale.double().repeat_interleave(group, 1)
    weight += offset.double().repeat_interleave(group, 1)
    return kernels.pack(Precision.W4A16, codes, scale, offset, None), weight


def packed_of(kernels: IntegerKernels, precision: Precision) -> IntegerWeights:
    """512 inputs, 40 outputs."""
    if precision is Precision.W4A16:
        return four_bits(kernels, 512, 40, 128)[0]
    return eight_bits(kernels, 512, 40, precision)[0]


@pytest.fixture
def _half_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_half_by_default")
def test_outputs_are_float32_whatever_the_process_makes_by_default(variant_kernels: CpuKernels) -> None:
    """Kernels wrote float32 into tensors of a process that makes bfloat16: past their ends."""
    weight = normal(3, 8).float()
    _, scale = to_int8(weight, variant_kernels)
    torch.testing.assert_close(scale, weight.abs().amax(1) / 127)

    scores = weight.softmax(1)
    _, weights = variant_kernels.route(weight, 2, normalized=False)
    torch.testing.assert_close(weights, scores.topk(2).values)

    blocks = torch.zeros(2, 34, dtype=torch.uint8)  # of Q8_0, all 0
    packed = variant_kernels.blocks.pack(blocks, "q8_0", None)
    rows = variant_kernels.blocks.rows(packed, torch.tensor([1]))
    assert rows.dtype == torch.float32 and not rows.any()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("precision", EIGHT)
def test_eight_bits(
    kernels: IntegerKernels, rows: int, inputs: int, outputs: int, precision: Precision
) -> None:
    packed, weight, bias = eight_bits(kernels, inputs, outputs, precision)
    x = normal(rows, inputs, seed=2)
    assert_close(kernels.linear(x, packed).double() - bias, x, weight, kernels.levels(precision))


@pytest.mark.parametrize("rows", [40, 300])
def test_a_large_layer_of_eight_bits(kernels: IntegerKernels, rows: int) -> None:
    """Of so many inputs, outputs and rows, products by tiles are cut in each of the three."""
    packed, weight, bias = eight_bits(kernels, 3200, 490, Precision.W8A8)
    x = normal(rows, 3200, seed=2)
    found = kernels.linear(x, packed)
    assert_close(found.double() - bias, x, weight, kernels.levels(Precision.W8A8))
    for row in (0, rows - 1):
        assert torch.equal(kernels.linear(x[row : row + 1], packed), found[row : row + 1])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("inputs", "outputs", "group"), GROUPED)
def test_four_bits(kernels: IntegerKernels, rows: int, inputs: int, outputs: int, group: int) -> None:
    packed, weight = four_bits(kernels, inputs, outputs, group)
    x = normal(rows, inputs, seed=2)
    assert_close(kernels.linear(x, packed), x, weight, 32767)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 160), (301, 33), (7, 1), (1, 3)])
def test_weights_are_encoded_as_pytorch_does_it(
    variant_kernels: CpuKernels, dtype: torch.dtype, inputs: int, outputs: int
) -> None:
    """To the same codes: a checkpoint that was written quantized gives the same tokens."""
    weight = normal(outputs, inputs).to(dtype)
    weight[0] = 0
    codes, scale = to_int8(weight, variant_kernels)
    assert torch.equal(codes, to_int8(weight).codes)
    assert torch.equal(scale, to_int8(weight).scale)


@pytest.mark.parametrize("rows", [1, 4, 30])
@pytest.mark.parametrize("group", [32, 256, 512])
def test_eight_bits_in_groups(kernels: IntegerKernels, rows: int, group: int) -> None:
    codes, x = integers(-128, 127, 20, 512).to(torch.int8), normal(rows, 512)
    scale, offset = normal(20, 512 // group), normal(20, 512 // group, seed=1)
    weight = codes.double() * scale.double().repeat_interleave(group, 1)
    weight += offset.double().repeat_interleave(group, 1)
    packed = kernels.pack(Precision.W8A16, codes, scale, offset, None)
    assert_close(kernels.linear(x, packed), x, weight, 32767)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("precision", EIGHT)
def test_the_largest_sums_do_not_overflow(kernels: IntegerKernels, precision: Precision, sign: int) -> None:
    codes = torch.full((20, 2048), sign * 127).to(torch.int8)
    packed = kernels.pack(precision, codes, torch.ones(20, 1), None, None)
    for rows in (1, 40):
        for x in (1.0, -1.0):
            out = kernels.linear(torch.full((rows, 2048), x), packed)
            torch.testing.assert_close(out, torch.full((rows, 20), x * sign * 127.0 * 2048))


@pytest.mark.parametrize("precision", Precision)
def test_a_row_is_the_same_alone_and_among_others(kernels: IntegerKernels, precision: Precision) -> None:
    """To the last bit."""
    packed, x = packed_of(kernels, precision), normal(200, 512)
    alone = torch.cat([kernels.linear(row[None], packed) for row in x])
    for count in (200, 97, 12, 7, 6, 2):
        assert torch.equal(kernels.linear(x[:count], packed), alone[:count])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 7, 40])
@pytest.mark.parametrize(("parts", "outputs"), [((64, 64), 160), ((24, 100, 1), 33), ((513, 7), 7)])
def test_sums_of_shares_give_the_bits_of_the_whole(
    kernels: IntegerKernels, parts: tuple[int, ...], outputs: int, rows: int, dtype: torch.dtype
) -> None:
    """Each of several ranks has a part of the inputs."""
    codes = integers(-127, 127, outputs, sum(parts)).to(torch.int8)
    scale, bias = normal(outputs, 1), normal(outputs)
    whole = kernels.pack(Precision.W8A8, codes, scale, None, bias)
    shares = [
        kernels.pack(Precision.W8A8, part, scale, None, bias) for part in codes.split(list(parts), dim=1)
    ]
    x = normal(rows, sum(parts), seed=2).to(dtype)
    largest, xs = magnitudes(x), x.split(list(parts), dim=1)
    sums = [kernels.sums(x, share, largest) for x, share in zip(xs, shares, strict=True)]
    total = torch.stack(sums).sum(0, dtype=torch.int32)
    assert torch.equal(kernels.finish(total, shares[0], largest, dtype), kernels.linear(x, whole))


def test_layers_whose_sums_would_be_several_pieces_are_added_up_as_floats(kernels: IntegerKernels) -> None:
    wide, _, _ = eight_bits(kernels, 40000, 8, Precision.W8A8)
    assert [adds_integers(wide, ranks) for ranks in (1, 2)] == [True, False]
    assert not adds_integers(packed_of(kernels, Precision.W8A16), 1)


@pytest.mark.parametrize("precision", Precision)
def test_threads_change_nothing(kernels: IntegerKernels, precision: Precision) -> None:
    packed, x, threads = packed_of(kernels, precision), normal(170, 512), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = kernels.linear(x, packed)
        torch.set_num_threads(2)
        assert torch.equal(kernels.linear(x, packed), one)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("precision", EIGHT)
def test_layers_of_one_input_side_by_side(kernels: IntegerKernels, precision: Precision) -> None:
    parts, x = [eight_bits(kernels, 40, outputs, precision)[0] for outputs in (32, 96, 64)], normal(9, 40)
    assert kernels.joins(parts)
    joint = kernels.linear(x, kernels.join(parts))
    assert torch.equal(joint, torch.cat([kernels.linear(x, part) for part in parts], dim=1))


def test_layers_that_do_not_go_together(kernels: IntegerKernels) -> None:
    whole = eight_bits(kernels, 64, 32)[0]
    assert not kernels.joins([whole, eight_bits(kernels, 64, 31)[0]])
    assert not kernels.joins([whole, four_bits(kernels, 64, 32, 32)[0]])
    assert not kernels.joins([whole, eight_bits(kernels, 72, 32)[0]])


@pytest.mark.parametrize("precision", EIGHT)
@pytest.mark.parametrize("outputs", [20, 96])
def test_bfloat16_is_float32_rounded_at_the_end(
    kernels: IntegerKernels, precision: Precision, outputs: int
) -> None:
    """Also of layers that are added up in pieces, and of sizes that are no multiple of vectors."""
    packed, x = eight_bits(kernels, 601, outputs, precision)[0], normal(33, 601).bfloat16()
    assert torch.equal(kernels.linear(x, packed), kernels.linear(x.float(), packed).bfloat16())
    few, x = four_bits(kernels, 640, outputs, 128)[0], normal(5, 640).bfloat16()
    assert torch.equal(kernels.linear(x, few), kernels.linear(x.float(), few).bfloat16())


def test_rows_that_lie_apart(kernels: IntegerKernels) -> None:
    packed, x = eight_bits(kernels, 24, 20)[0], normal(9, 3, 24)
    assert torch.equal(kernels.linear(x[:, 1], packed), kernels.linear(x[:, 1].contiguous(), packed))


@pytest.mark.parametrize("precision", EIGHT)
def test_rows_of_the_weight(kernels: IntegerKernels, precision: Precision) -> None:
    packed, weight, _ = eight_bits(kernels, 300, 50, precision)
    tokens = torch.tensor([49, 0, 17, 17])
    torch.testing.assert_close(kernels.rows(packed, tokens), weight[tokens].float())


@pytest.mark.parametrize("precision", EIGHT)
def test_tokens_of_zeros_give_the_bias(kernels: IntegerKernels, precision: Precision) -> None:
    packed, _, bias = eight_bits(kernels, 64, 20, precision)
    for rows in (0, 1, 9):
        out = kernels.linear(torch.zeros(rows, 64), packed)
        assert torch.equal(out, bias.float().expand(rows, -1))


@pytest.mark.parametrize("precision", EIGHT)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 63, 65])
def test_what_is_no_number_stays_none(
    kernels: IntegerKernels, value: float, place: int, precision: Precision
) -> None:
    """And harms no other row."""
    packed, x = eight_bits(kernels, 66, 20, precision)[0], normal(8, 66)
    x[3, place] = value
    out = kernels.linear(x, packed)
    assert out[3].isnan().all()
    assert out[[0, 1, 2, 4, 5, 6, 7]].isfinite().all()


def test_other_widths_are_refused(kernels: IntegerKernels) -> None:
    """Which were read past the ends of rows."""
    packed = eight_bits(kernels, 64, 20)[0]
    with pytest.raises(ValueError, match="64 inputs are expected, not 63"):
        kernels.linear(normal(2, 63), packed)
    with pytest.raises(ValueError, match="64 inputs are expected, not 65"):
        kernels.sums(normal(2, 65), packed, torch.ones(2))


def test_other_numbers_are_refused(kernels: IntegerKernels) -> None:
    packed = eight_bits(kernels, 64, 20)[0]
    with pytest.raises(TypeError, match=r"take float32 and bfloat16, not torch\.float16"):
        kernels.linear(normal(3, 64).half(), packed)
    with pytest.raises(ValueError, match="100 inputs in 3 groups cannot be packed"):
        kernels.pack(Precision.W8A16, torch.zeros(16, 100, dtype=torch.int8), torch.ones(16, 3), None, None)
