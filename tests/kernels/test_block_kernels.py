"""Compiled layers in blocks give what the float32 weights give that they stand for, to the bit."""

from __future__ import annotations

import gguf
import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from turnout.kernels import CpuKernels
from turnout.kernels.blocks import BLOCK_TYPES, BlockWeights
from turnout.kernels.self_test.quantized import HALVES
from turnout.kernels.variants import cpu_features

ROWS = [1, 2, 3, 6, 8, 9, 14, 15, 40, 250]
SHAPES = [(32, 7), (256, 32), (288, 100), (896, 65), (4864, 33)]
BITS = [8, 4]
KINDS = [*BLOCK_TYPES]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def drawn(inputs: int, outputs: int, bits: int) -> tuple[Tensor, Tensor]:
    """Codes, int8 [outputs, inputs], and scales of all sizes that float16 has."""
    most = 2 ** (bits - 1)
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(-most, most, (outputs, inputs), generator=generator).to(torch.int8)
    scale = (normal(outputs, inputs // 32) * 10.0 ** normal(outputs, inputs // 32, seed=1)).half()
    scale.view(-1)[0], scale.view(-1)[-1] = 2.0**-24, -65504.0
    return codes, scale


def stored(codes: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Blocks as a GGUF file has them, uint8 [outputs, bytes]."""
    groups = codes.view(*scale.shape, 32)
    if bits == 4:
        halves = (groups + 8).view(torch.uint8)
        groups = halves[..., :16] | halves[..., 16:] << 4
    return torch.cat([scale.unsqueeze(-1).view(torch.uint8), groups.view(torch.uint8)], dim=-1).flatten(1)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_blocks_lie_in_panels(variant_kernels: CpuKernels, inputs: int, outputs: int, bits: int) -> None:
    """Of a panel's columns the scales, then the codes, column by column; zeros behind the last row."""
    panel = variant_kernels.blocks.panel
    codes, scale = drawn(inputs, outputs, bits)
    columns = pad(codes, (0, 0, 0, -outputs % panel)).view(-1, panel, inputs // 32, 32).permute(0, 2, 3, 1)
    scales = pad(scale, (0, 0, 0, -outputs % panel)).view(-1, panel, inputs // 32).transpose(1, 2)
    if bits == 4:
        eights = (columns.to(torch.int64) + 8).unflatten(2, (4, 8))
        columns = (eights << torch.arange(0, 32, 4).view(8, 1)).sum(3).to(torch.int32)
    expected = [part.contiguous().view(torch.uint8).flatten(2) for part in (scales, columns)]
    packed = variant_kernels.blocks.pack(stored(codes, scale, bits), f"q{bits}_0", None)
    assert torch.equal(packed.numbers, torch.cat(expected, dim=2))


def layer(
    kernels: CpuKernels, inputs: int, outputs: int, kind: str, *, bias: bool = False
) -> tuple[BlockWeights, Tensor]:
    """Packed, and the weight in float32, as the library has it. inputs: rounded up to whole blocks."""
    of = BLOCK_TYPES[kind]
    blocks = -(-inputs // of.inputs)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randint(0, 256, (outputs, blocks, of.stored), generator=generator, dtype=torch.uint8)
    for at in HALVES[kind]:
        scale = (normal(outputs, blocks, 1, seed=at) * 10.0 ** normal(outputs, blocks, 1, seed=1)).half()
        scale.view(-1)[0], scale.view(-1)[-1] = 2.0**-24, -1000.0
        rows[..., at : at + 2] = scale.view(torch.uint8)
    rows = rows.flatten(1)
    own = normal(outputs, seed=5) if bias else None
    weight = gguf.dequantize(rows.numpy(), gguf.GGMLQuantizationType[kind.upper()])
    return kernels.blocks.pack(rows, kind, own), torch.from_numpy(weight)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_results_are_those_of_float32_weights(
    variant_kernels: CpuKernels, inputs: int, outputs: int, kind: str
) -> None:
    packed, weight = layer(variant_kernels, inputs, outputs, kind, bias=True)
    floats = variant_kernels.pack([weight])
    for rows in ROWS:
        x = normal(rows, packed.inputs, seed=7)
        found = variant_kernels.blocks.linear(x, packed)
        assert torch.equal(found, variant_kernels.linear(x, floats, packed.bias)), f"{rows} rows"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_result_in_any_batch(
    variant_kernels: CpuKernels, kind: str, dtype: torch.dtype
) -> None:
    """Few rows may go by vectors, and more by tiles, or past panels that were widened before."""
    packed, _ = layer(variant_kernels, 896, 96, kind, bias=True)
    x = normal(301, packed.inputs).to(dtype)
    together = variant_kernels.blocks.linear(x, packed)
    for first, count in [(0, 1), (14, 2), (249, 3), (13, 4), (100, 5), (60, 8), (70, 9), (200, 17), (40, 33)]:
        rows = slice(first, first + count)
        assert torch.equal(variant_kernels.blocks.linear(x[rows], packed), together[rows]), f"{count} rows"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_activations_in_bfloat16_are_not_rounded(
    variant_kernels: CpuKernels, inputs: int, outputs: int, kind: str
) -> None:
    packed, weight = layer(variant_kernels, inputs, outputs, kind, bias=True)
    assert packed.bias is not None
    for rows in (1, 3, 8, 9, 15, 40, 270):
        x = normal(rows, packed.inputs).bfloat16()
        found = variant_kernels.blocks.linear(x, packed).double()
        expected = x.double() @ weight.double().T + packed.bias
        sizes = x.double().abs() @ weight.double().abs().T + packed.bias.abs()
        # bfloat16 keeps 8 bits of the result; float32's sums lose the last of 24 bits, each time
        assert ((found - expected).abs() <= expected.abs() * 2**-8 + sizes * 2**-19).all(), f"{rows} rows"


@pytest.mark.parametrize("kind", KINDS)
def test_activations_in_bfloat16_are_widened(variant_kernels: CpuKernels, kind: str) -> None:
    """But where there are instructions that multiply bfloat16 numbers."""
    variant = variant_kernels.variant
    if (
        "amx" in variant
        or variant == "avx512-bf16"
        or (variant == "native" and "avx512_bf16" in cpu_features())
    ):
        pytest.skip("they add up in another order")
    packed, _ = layer(variant_kernels, 288, 50, kind, bias=True)
    for rows in (1, 40):
        x = normal(rows, packed.inputs).bfloat16()
        wide = variant_kernels.blocks.linear(x.float(), packed)
        assert torch.equal(variant_kernels.blocks.linear(x, packed), wide.bfloat16())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_the_weight_are_read(variant_kernels: CpuKernels, kind: str) -> None:
    packed, weight = layer(variant_kernels, 96, 70, kind)
    tokens = torch.tensor([0, 69, 33, 5])
    assert torch.equal(variant_kernels.blocks.rows(packed, tokens), weight[tokens])


@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_whole_panels_are_joined(variant_kernels: CpuKernels, kind: str) -> None:
    blocks = variant_kernels.blocks
    whole, _ = layer(variant_kernels, 64, 2 * blocks.panel, kind, bias=True)
    last, _ = layer(variant_kernels, 64, blocks.panel, kind)
    part, _ = layer(variant_kernels, 64, blocks.panel + 1, kind)
    assert not blocks.joins([whole, part])
    assert blocks.joins([whole, last])
    x = normal(3, whole.inputs)
    apart = torch.cat([blocks.linear(x, each) for each in (whole, last)], dim=1)
    assert torch.equal(blocks.linear(x, blocks.join([whole, last])), apart)
