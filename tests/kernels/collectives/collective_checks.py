"""What each rank checks of a collective, in a process of its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from turnout.core.interfaces.collective import Collective

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((1, 7), (32, 896), (3, 5, 64), (300, 1001))
"""The last takes several pieces, of uneven length."""


def of_rank(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """What a rank contributes, known to all: numbers whose sum depends on the order."""
    generator = torch.Generator().manual_seed(rank + 1)
    sizes = torch.randint(-2, 3, shape, generator=generator)
    return (torch.randn(shape, generator=generator) * 10.0**sizes).to(dtype)


def in_rank_order(size: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    total = of_rank(0, shape, dtype).float()
    for rank in range(1, size):
        total = total + of_rank(rank, shape, dtype).float()
    return total.to(dtype)


def sums(ranks: Collective) -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            found = ranks.all_reduce(of_rank(ranks.rank, shape, dtype))
            assert torch.equal(found, in_rank_order(ranks.size, shape, dtype)), (dtype, shape)
    strided = of_rank(ranks.rank, (6, 8), torch.float32).t()
    assert torch.equal(ranks.all_reduce(strided), in_rank_order(ranks.size, (6, 8), torch.float32).t())
    assert ranks.all_reduce(torch.empty(0, 4)).shape == (0, 4)


def sums_do_not_depend_on_the_batch(ranks: Collective) -> None:
    """Row by row, or all rows at once, of any length: the same bits."""
    whole = ranks.all_reduce(of_rank(ranks.rank, (33, 896), torch.bfloat16))
    rows = of_rank(ranks.rank, (33, 896), torch.bfloat16)
    for first, last in ((0, 1), (1, 3), (3, 33)):
        assert torch.equal(ranks.all_reduce(rows[first:last].clone()), whole[first:last])


def largest(ranks: Collective) -> None:
    for dtype in DTYPES:
        most = torch.stack([of_rank(rank, (5, 9), dtype) for rank in range(ranks.size)]).amax(0)
        assert torch.equal(ranks.all_reduce_max(of_rank(ranks.rank, (5, 9), dtype)), most)


def gathers(ranks: Collective) -> None:
    for dtype in DTYPES:
        parts = [of_rank(rank, (4, 6), dtype) for rank in range(ranks.size)]
        assert torch.equal(ranks.all_gather(parts[ranks.rank]), torch.cat(parts))
        joined = ranks.gather(parts[ranks.rank])
        if ranks.rank == 0:
            assert joined is not None
            assert torch.equal(joined, torch.cat(parts, -1))
        else:
            assert joined is None
    sizes = [5 + 3 * rank for rank in range(ranks.size)]
    parts = [of_rank(rank, (2, size), torch.float32) for rank, size in enumerate(sizes)]
    joined = ranks.gather(parts[ranks.rank], sizes)
    assert (joined is None) == (ranks.rank > 0)
    assert joined is None or torch.equal(joined, torch.cat(parts, -1))
    large = [of_rank(rank, (700, 999), torch.float32) for rank in range(ranks.size)]
    assert torch.equal(ranks.all_gather(large[ranks.rank]), torch.cat(large))
    joined = ranks.gather(large[ranks.rank])
    assert joined is None or torch.equal(joined, torch.cat(large, -1))


def scatters(ranks: Collective) -> None:
    for dtype in DTYPES:
        shape = (3 * ranks.size, 1000)
        whole = in_rank_order(ranks.size, shape, dtype)
        found = ranks.reduce_scatter(of_rank(ranks.rank, shape, dtype))
        assert torch.equal(found, whole[3 * ranks.rank : 3 * ranks.rank + 3])
    with pytest.raises(ValueError, match="cannot be divided evenly"):
        ranks.reduce_scatter(torch.zeros(ranks.size + 1, 2))


def sends(ranks: Collective) -> None:
    """Each rank to the next, and the last back to the first, twice, large and small."""
    after, before = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    for shape in ((1, 3), (40, 896), (1000, 501)):
        for dtype in DTYPES:
            if ranks.rank:
                found = ranks.receive(torch.empty(shape, dtype=dtype), before)
                assert torch.equal(found, of_rank(before, shape, dtype))
            ranks.send(of_rank(ranks.rank, shape, dtype), after)
            if not ranks.rank:
                found = ranks.receive(torch.empty(shape, dtype=dtype), before)
                assert torch.equal(found, of_rank(before, shape, dtype))


def whole_numbers(ranks: Collective) -> None:
    """Sums of integers are exact; tokens and lengths are exchanged, too."""
    drawn = [
        torch.randint(-(2**28), 2**28, (300, 1001), generator=torch.Generator().manual_seed(rank)).int()
        for rank in range(ranks.size)
    ]
    assert torch.equal(ranks.all_reduce(drawn[ranks.rank].clone()), torch.stack(drawn).sum(0).int())
    assert torch.equal(ranks.all_reduce_max(drawn[ranks.rank].clone()), torch.stack(drawn).amax(0))
    numbers = [torch.arange(6) * (rank + 3) << 33 for rank in range(ranks.size)]
    assert torch.equal(ranks.all_gather(numbers[ranks.rank]), torch.cat(numbers))
    if ranks.rank == 0:
        ranks.send(numbers[0], 1)
    elif ranks.rank == 1:
        assert torch.equal(ranks.receive(torch.empty_like(numbers[0]), 0), numbers[0])


def everything(ranks: Collective) -> None:
    sums(ranks)
    sums_do_not_depend_on_the_batch(ranks)
    largest(ranks)
    gathers(ranks)
    scatters(ranks)
    sends(ranks)
    whole_numbers(ranks)
    ranks.barrier()
