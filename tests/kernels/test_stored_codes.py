"""Native kernels write KV in 8 bits as PyTorch does, to the bit, and attend to what the codes stand for."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels import CpuKernels
from turnout.kernels.attention.dense import attend_densely, hidden_from
from turnout.kernels.attention.rule import rule_of
from turnout.kernels.compiled import BlockTables
from turnout.plugins.kv_backends.storage.pool import make_storage
from turnout.plugins.kv_backends.storage.tensors import PoolShape, Storage

Kind = Literal["int8", "fp8"]
KINDS: list[Kind] = ["int8", "fp8"]
DTYPES = [torch.float32, torch.bfloat16]
LENGTH = 150
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def kernels(variant_kernels: CpuKernels) -> CpuKernels:
    return variant_kernels


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def storage_of(kind: Kind, rule: LayerAttention, slots: int, dtype: torch.dtype) -> Storage:
    return make_storage(kind, PoolShape.of(rule, 1, slots), CPU, dtype)


def unlike_numbers(kind: Kind, tokens: int, dim: int) -> Tensor:
    """Returns [tokens, 3, dim]: of all sizes, ties between codes, small ones beside large ones, and zeros."""
    sizes = torch.logspace(-36, 36, tokens)[:, None]
    top = 127 if kind == "int8" else 448
    steps = torch.arange(dim) % 256 - 128
    ties = (steps + 0.5) if kind == "int8" else torch.where(steps % 2 == 0, 2.0**-10, 1.0) * (steps + 0.5)
    ties = ties.clamp(-top, top)
    ties[0] = top  # so that the scale is 1
    spread = normal(tokens, dim, seed=1) * torch.logspace(-12, 0, dim)
    spread[: tokens // 4] = 0
    return torch.stack([normal(tokens, dim) * sizes, ties.expand(tokens, dim), spread], dim=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [64, 20, 128])
@pytest.mark.parametrize("tokens", [7, 600])
def test_codes_are_those_that_pytorch_makes(
    kernels: CpuKernels, dtype: torch.dtype, kind: Kind, dim: int, tokens: int
) -> None:
    rule = LayerAttention(3, 3, dim, dim)
    plain, native = (storage_of(kind, rule, 2 * tokens, dtype) for _ in range(2))
    k, v = (unlike_numbers(kind, tokens, dim).to(dtype).roll(by, 1) for by in (0, 1))
    slots = torch.randperm(2 * tokens, generator=torch.Generator().manual_seed(3))[:tokens]
    plain.write(0, slots, k, v)
    beside = torch.cat((k, v), dim=1)  # as layers have them: in one row
    for rows, pool in zip(beside.split(3, dim=1), native.stored(0), strict=True):
        kernels.write(rows, pool, slots)
    for found, expected in zip(native.tensors, plain.tensors, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_what_is_no_number_stays_none(kernels: CpuKernels, kind: Kind, wrong: float) -> None:
    rule = LayerAttention(1, 1, 40, 40)
    storage = storage_of(kind, rule, 1, torch.float32)
    k = normal(1, 1, 40)
    k[..., 17] = wrong
    for pool in storage.stored(0):
        kernels.write(k, pool, torch.tensor([0]))
    table = BlockTables(1, *(torch.tensor([each]) for each in (0, 1, 0)), torch.tensor([[0]]))
    assert kernels.attend(k, *storage.stored(0), table).isnan().all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_code_is_read_exactly(kernels: CpuKernels, kind: Kind) -> None:
    """Where one position is all that there is, what comes out are its values."""
    storage = storage_of(kind, LayerAttention(1, 1, 256, 256), 1, torch.float32)
    keys, values = storage.stored(0)
    codes = torch.arange(256, dtype=torch.uint8).view(values.numbers.dtype)
    codes = torch.where(codes.float().isnan(), 0, codes.view(torch.uint8)).view(codes.dtype)
    values.numbers.copy_(codes)
    assert values.scales is not None
    values.scales.fill_(0.5)
    table = BlockTables(1, *(torch.tensor([each]) for each in (0, 1, 0)), torch.tensor([[0]]))
    assert torch.equal(kernels.attend(normal(1, 1, 256), keys, values, table)[0, 0], codes.float() / 2)


RULES = {
    "plain": LayerAttention(6, 2, 64, 64),
    "wide heads": LayerAttention(1, 1, 256, 256),
    "a window": LayerAttention(6, 2, 32, 32, window=40),
    "a soft cap and sinks": LayerAttention(8, 1, 32, 32, softcap=3.0, scale=1.0, sinks=True),
    "values of another width": LayerAttention(6, 2, 24, 40, scale=0.3),
    "values in keys": LayerAttention(20, 1, 48, 40, values_in_keys=True),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", [4, 16])
def test_attention_is_the_textbooks_over_what_codes_stand_for(
    kernels: CpuKernels, dtype: torch.dtype, kind: Kind, rule: LayerAttention, size: int
) -> None:
    """And the same to the bit, whether a token comes alone, with others, or in its whole prompt."""
    blocks = -(-LENGTH // size)
    slots = torch.randperm(blocks, generator=torch.Generator().manual_seed(3))[None] * size
    where = (slots[0][:, None] + torch.arange(size)).reshape(-1)[:LENGTH]
    storage = storage_of(kind, rule, blocks * size, torch.float32)
    k, v = (
        normal(LENGTH, rule.kv_heads, dim, seed=seed) * torch.logspace(-2, 2, LENGTH)[:, None, None]
        for seed, dim in enumerate((rule.key_dim, rule.value_dim), 1)
    )
    storage.write(0, where, k / 30, None if rule.values_in_keys else v)
    keys, values = storage.stored(0)
    q, sinks = normal(LENGTH, rule.heads, rule.key_dim).to(dtype), normal(rule.heads, seed=5)

    def attended(starts: list[int], lengths: list[int]) -> Tensor:
        counts = torch.tensor(lengths)
        tables = slots.expand(len(starts), -1).contiguous()
        table = BlockTables(size, counts.cumsum(0) - counts, counts, torch.tensor(starts), tables)
        rows = torch.cat([q[start : start + count] for start, count in zip(starts, lengths, strict=True)])
        return kernels.attend(rows, keys, values, table, rule_of(rule), sinks if rule.sinks else None)

    whole = attended([0], [LENGTH])
    alone = torch.cat([attended([start], [1]) for start in range(LENGTH)])
    together = torch.cat(
        [attended(list(range(start, start + 15)), [1] * 15) for start in range(0, LENGTH, 15)]
    )
    parts = torch.cat([attended([start], [30]) for start in range(0, LENGTH, 30)])
    assert torch.equal(alone, whole) and torch.equal(together, whole) and torch.equal(parts, whole)

    mask, places = torch.zeros(LENGTH, LENGTH, dtype=torch.float64), torch.arange(LENGTH)
    mask.masked_fill_(hidden_from(places[:, None], places, rule.window), -torch.inf)
    stand_for = (each[where].double() for each in storage.read(0, slice(None)))
    sides = (each[None] for each in (q.double(), *stand_for))
    expected = attend_densely(rule, *sides, mask[None, None], sinks if rule.sinks else None)[0]
    sizes = expected.abs().amax(-1, keepdim=True)
    most = 2e-5 if dtype == torch.float32 else 2e-2
    assert ((whole.double() - expected).abs() <= most * sizes).all()
