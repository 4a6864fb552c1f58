"""Collectives over shared memory: numbers are rounded as PyTorch does, and a wait ends when it is told to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from turnout.core.errors import CollectiveError, ConfigError
from turnout.core.meeting import Meeting
from turnout.kernels import CpuKernels
from turnout.kernels.collectives import choose, shm
from turnout.kernels.collectives.rank_order import largest, summed
from turnout.kernels.collectives.shm import SharedMemory


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    made = Meeting.on_this_machine()
    yield made
    made.close()


@pytest.fixture
def pair(variant_kernels: CpuKernels, meeting: Meeting) -> Iterator[list[SharedMemory]]:
    """Two ranks, which are threads here."""
    with ThreadPoolExecutor(2) as pool:
        ranks = list(pool.map(lambda rank: SharedMemory(meeting, rank, 2, 3, variant_kernels), range(2)))
    yield ranks
    for rank in ranks:
        rank.close()


def of_both(pair: list[SharedMemory], call: Callable[[SharedMemory], Tensor]) -> list[Tensor]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(call, pair))


def every_half(dtype: torch.dtype) -> Tensor:
    """All numbers of 16 bits, NaN, infinite and those below the smallest normal one among them."""
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_number_is_added_and_rounded_as_pytorch_does(
    pair: list[SharedMemory], dtype: torch.dtype
) -> None:
    """Of an odd length, so that some are computed in vectors and some alone."""
    halves = every_half(torch.bfloat16 if dtype == torch.float32 else dtype).to(dtype)
    order = torch.randperm(len(halves), generator=torch.Generator().manual_seed(0))
    parts = [halves[1:], halves[order][1:]]
    sums = of_both(pair, lambda rank: rank.all_reduce(parts[rank.rank].clone()))
    most = of_both(pair, lambda rank: rank.all_reduce_max(parts[rank.rank].clone()))
    for pair_found, wanted in ((sums, summed(parts)), (most, largest(parts))):
        for found in pair_found:
            assert torch.equal(found.isnan(), wanted.isnan())
            assert torch.equal(found.nan_to_num(0), wanted.nan_to_num(0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_number_is_the_same_wherever_it_lies(pair: list[SharedMemory], dtype: torch.dtype) -> None:
    """Also the smallest, which an instruction of some CPUs takes for zeros."""
    small = (torch.randn(100, generator=torch.Generator().manual_seed(0)) * 2.0**-130).to(dtype)
    whole = of_both(pair, lambda rank: rank.all_reduce(small.clone()))[0]
    for first in (0, 1, 7, 64, 97):
        for found in of_both(pair, lambda rank, first=first: rank.all_reduce(small[first:].clone())):
            assert torch.equal(found, whole[first:])
    assert whole.count_nonzero() > 90


def test_threads_that_share_out_a_piece_change_nothing(pair: list[SharedMemory]) -> None:
    x = torch.randn(3, 100_001, generator=torch.Generator().manual_seed(0))
    for found in of_both(pair, lambda rank: rank.all_reduce(x.clone())):
        assert torch.equal(found, x + x)


@pytest.mark.parametrize(
    "wait",
    [
        lambda rank: rank.all_reduce(torch.zeros(8)),
        lambda rank: rank.receive(torch.zeros(8), 1),
        lambda rank: rank.send(torch.zeros(8 << 20), 1),  # more than is kept for a rank that does not come
    ],
)
def test_a_wait_for_a_rank_that_is_gone_ends(
    pair: list[SharedMemory], wait: Callable[[SharedMemory], object]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[object] = pool.submit(wait, pair[0])
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        pair[1].abort()
        with pytest.raises(CollectiveError, match="another rank of the engine is gone"):
            waiting.result(30)
    with pytest.raises(CollectiveError):  # and from now on
        pair[0].barrier()


def test_memory_is_taken_as_it_is_used_and_has_no_name(pair: list[SharedMemory], meeting: Meeting) -> None:
    of_both(pair, lambda rank: rank.all_reduce(torch.ones(32, 896)))
    assert os.fstat(meeting.descriptor).st_nlink == 0
    assert os.fstat(meeting.descriptor).st_blocks * 512 < 2 << 20


def test_ranks_that_cannot_share_memory_are_refused(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ConfigError, match="processes of one machine, not for ranks that meet at tcp://there:1"
    ):
        SharedMemory(Meeting(host="there", port=1), 0, 2)
    with pytest.raises(ConfigError, match="at most 64 ranks, not 65; use gloo"):
        SharedMemory(meeting, 0, 65)

    def none() -> CpuKernels:
        raise ConfigError("there is no C++ compiler (c++)")

    monkeypatch.setattr(shm, "native_kernels", none)
    assert choose.collective_of_machine() == "shm"
    monkeypatch.setattr(choose, "native_kernels", none)
    assert choose.collective_of_machine() == "gloo"
    with pytest.raises(ConfigError, match=r"native kernels: there is no C.. compiler .*; use gloo"):
        SharedMemory(meeting, 0, 2)
