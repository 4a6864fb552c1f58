"""The kernels of encoders: what PyTorch computes, and a row's bits whatever else is in the batch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels import CpuKernels, choose_kernels, cpu_kernels
from turnout.kernels.attention.dense import hidden_from
from turnout.kernels.attention.rule import rule_of
from turnout.kernels.compiled import BlockTables

SIZES = (16, 37, 384)
DTYPES = {torch.float32: 2e-6, torch.bfloat16: 2**-7}


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    found = cpu_kernels(choose_kernels("native", torch.device("cpu"), torch.float32).kernels)
    assert found is not None
    return found


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_near(found: Tensor, expected: Tensor, bound: float) -> None:
    assert (found.double() - expected).abs().max() <= bound * expected.abs().max()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_layer_norm_is_pytorchs(kernels: CpuKernels, dtype: torch.dtype, size: int) -> None:
    x, delta = (3 + numbers(5, size, seed=seed).to(dtype) for seed in (1, 2))
    weight, bias = numbers(2, size, seed=3).to(dtype)
    for some in (bias, None):
        total = (x + delta).double()
        expected = F.layer_norm(
            total, (size,), weight.double(), None if some is None else some.double(), 1e-12
        )
        summed = x.clone()
        found = kernels.layer_norm(summed, delta, weight, some, 1e-12, torch.empty_like(x))
        assert_near(found, expected, DTYPES[dtype])
        assert torch.equal(summed, x + delta)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelus_are_pytorchs(kernels: CpuKernels, dtype: torch.dtype) -> None:
    x, bound = torch.linspace(-12, 12, 7 * 61).view(7, 61).to(dtype), DTYPES[dtype]
    for by_tanh, approximate in ((False, "none"), (True, "tanh")):
        found = kernels.gelu(x.clone(), by_tanh=by_tanh)
        assert_near(found, F.gelu(x.double(), approximate=approximate), bound)
    both = 3 * numbers(7, 2 * 37).to(dtype)
    gate, up = both.double().chunk(2, dim=-1)
    assert_near(kernels.gelu_gate(both), F.gelu(gate) * up, bound)


def flat_tables(lengths: list[int]) -> BlockTables:
    counts = torch.tensor(lengths)
    rows = counts.cumsum(0) - counts
    return BlockTables(max(lengths), rows, counts, torch.zeros_like(counts), rows[:, None].contiguous())


@pytest.mark.parametrize("window", [None, 1, 17, 65])
@pytest.mark.parametrize("dtype", DTYPES)
def test_texts_are_seen_in_both_directions(
    kernels: CpuKernels, dtype: torch.dtype, window: int | None
) -> None:
    lengths, heads, dim = [1, 70, 3, 64, 200], 3, 32
    rule = LayerAttention(heads, heads, dim, dim, window=window, causal=False)
    q, k, v = numbers(sum(lengths), 3 * heads, dim).to(dtype).chunk(3, dim=1)
    found = kernels.attend(q, k, v, flat_tables(lengths), rule_of(rule))
    for part, sides in zip(
        found.split(lengths), zip(*(each.split(lengths) for each in (q, k, v)), strict=True), strict=True
    ):
        places = torch.arange(len(part))
        seen = ~hidden_from(places[:, None], places, window, causal=False)
        expected = F.scaled_dot_product_attention(
            *(side.double().transpose(0, 1) for side in sides), attn_mask=seen
        )
        assert_near(part, expected.transpose(0, 1), DTYPES[dtype])
        alone = kernels.attend(*sides, flat_tables([len(part)]), rule_of(rule))
        assert torch.equal(alone, part)  # to the bit, whatever else the batch holds
