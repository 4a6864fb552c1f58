"""Layers that ranks share out: the native kernels add up what attention's and the MLP's shares put out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from turnout.core.errors import CollectiveError
from turnout.core.meeting import Meeting
from turnout.kernels import CpuKernels
from turnout.kernels.attention.stored import StoredVectors
from turnout.kernels.collectives.shm import SharedMemory
from turnout.kernels.compiled import BlockTables
from turnout.kernels.integers import Precision
from turnout.kernels.layers import GatedWeights, Heads, InPlace, LayerWeights, NativeLayers
from turnout.kernels.linears import FloatWeights, LinearWeights

SIZE, HEADS, KEYS, DIM, WIDE, TOKENS, LAYERS = 64, 4, 2, 16, 96, 5, 3
SHARES = 2


def weights(
    kernels: CpuKernels, layer: int, rank: int, ranks: int, group: int | None, integers: bool
) -> LayerWeights:
    """A rank's share of a layer: rows of what splits outputs, columns of what splits inputs."""
    generator = torch.Generator().manual_seed(layer)

    def drawn(outputs: int, inputs: int) -> Tensor:
        return torch.randn(outputs, inputs, generator=generator) / inputs**0.5

    def rows(weight: Tensor) -> Tensor:
        return weight.chunk(ranks, 0)[rank].contiguous()

    def columns(weight: Tensor) -> Tensor:
        return weight.chunk(ranks, 1)[rank].contiguous()

    def packed(*parts: Tensor) -> LinearWeights:
        if not integers:
            return FloatWeights(kernels.pack(parts), None)
        scale = torch.full((sum(map(len, parts)), 1), 0.01)  # the same for a share
        codes = (torch.cat(parts) / 0.01).round().clamp(-127, 127).to(torch.int8)
        return kernels.integers.pack(Precision.W8A8, codes, scale, None, None)

    q, k, v = drawn(HEADS * DIM, SIZE), drawn(KEYS * DIM, SIZE), drawn(KEYS * DIM, SIZE)
    out, gate, up, down = drawn(SIZE, HEADS * DIM), drawn(WIDE, SIZE), drawn(WIDE, SIZE), drawn(SIZE, WIDE)
    return LayerWeights(
        [torch.ones(SIZE), torch.ones(SIZE)],
        packed(rows(q), rows(k), rows(v)),
        packed(columns(out)),
        GatedWeights(packed(rows(gate), rows(up)), packed(columns(down))),
        Heads(HEADS // ranks, KEYS // ranks, DIM),
        1e-6,
        group=group,
    )


def computed(
    kernels: CpuKernels,
    rank: int,
    ranks: int,
    group: int | None,
    picked: Tensor | None,
    integers: bool = False,
) -> Tensor:
    """What comes of a prompt, as that rank has it."""
    layers = [weights(kernels, layer, rank, ranks, group, integers) for layer in range(LAYERS)]
    shape = 16, KEYS // ranks, DIM
    pools = [(StoredVectors(torch.zeros(shape)), StoredVectors(torch.zeros(shape))) for _ in layers]
    tables = BlockTables(16, *(torch.tensor([each]) for each in (0, TOKENS, 0)), torch.tensor([[0]]))
    hidden = torch.randn(TOKENS, SIZE, generator=torch.Generator().manual_seed(99))
    angles = torch.arange(TOKENS)[:, None, None] * torch.ones(1, 1, DIM) * 0.1
    joined = NativeLayers(kernels, layers, pools)
    place = InPlace(pools, [torch.arange(TOKENS)], [tables])
    left, delta = joined(hidden, [(angles.cos(), angles.sin())], place, picked)
    return left + delta


OnRanks = Callable[[Tensor | None, bool], list[Tensor]]


@pytest.fixture
def on_ranks(variant_kernels: CpuKernels) -> OnRanks:
    def run(picked: Tensor | None, integers: bool) -> list[Tensor]:
        meeting = Meeting.on_this_machine()

        def of_rank(rank: int) -> Tensor:
            group = SharedMemory(meeting, rank, SHARES, kernels=variant_kernels)
            return computed(variant_kernels, rank, SHARES, group.native_group, picked, integers)

        with ThreadPoolExecutor(SHARES) as pool:
            found = list(pool.map(of_rank, range(SHARES)))
        meeting.close()
        return found

    return run


@pytest.mark.parametrize("picked", [None, torch.tensor([1, 4])])
def test_shares_add_up_to_the_whole(
    variant_kernels: CpuKernels,
    on_ranks: Callable[[Tensor | None, bool], list[Tensor]],
    picked: Tensor | None,
) -> None:
    whole = computed(variant_kernels, 0, 1, None, picked)
    first, second = on_ranks(picked, False)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("picked", [None, torch.tensor([1, 4])])
def test_shares_of_integers_add_up_to_the_bits_of_the_whole(
    variant_kernels: CpuKernels,
    on_ranks: Callable[[Tensor | None, bool], list[Tensor]],
    picked: Tensor | None,
) -> None:
    whole = computed(variant_kernels, 0, 1, None, picked, True)
    first, second = on_ranks(picked, True)
    assert torch.equal(first, second)
    assert torch.equal(first, whole)


def test_layers_end_where_a_rank_is_gone(variant_kernels: CpuKernels) -> None:
    meeting = Meeting.on_this_machine()
    with ThreadPoolExecutor(2) as pool:
        ranks = pool.map(lambda rank: SharedMemory(meeting, rank, 2, kernels=variant_kernels), range(2))
        here, gone = ranks
        computing = pool.submit(computed, variant_kernels, 0, 2, here.native_group, None)
        gone.abort()
        with pytest.raises(CollectiveError, match="another rank of the engine is gone"):
            computing.result(60)
    meeting.close()
