"""The GPU that is not there refuses what one refuses, and finds what one would get wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl
from card import card
from torch import Tensor

pytestmark = [
    pytest.mark.usefixtures("card_guard"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
]


def there(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).to("cuda")


def locked(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).pin_memory()


@triton.jit
def doubled(x, out, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.arange(0, SIZE)
    tl.store(out + places, 2 * tl.load(x + places))


def test_it_computes() -> None:
    with card():
        x = torch.arange(4, device="cuda", dtype=torch.float32)
        out = torch.empty_like(x)
        doubled[1,](x, out, SIZE=4)
        assert x.is_cuda and out.device == torch.device("cuda", 0)
        assert (out + x.view(2, 2)[1, 1]).cpu().tolist() == [3, 5, 7, 9]


def test_views_are_in_the_same_memory() -> None:
    with card():
        x = torch.zeros(2, 3, device="cuda")
        x[1].fill_(4)
        assert x.tolist() == [[0, 0, 0], [4, 4, 4]]


def test_what_was_not_written_is_no_number() -> None:
    with card():
        assert torch.empty(3, device="cuda").isnan().all()


def test_operands_on_different_devices_are_refused() -> None:
    with card():
        with pytest.raises(RuntimeError, match="one of shape \\[2\\] is on cpu"):
            there(1, 2) + torch.ones(2)
        assert (there(1, 2) + torch.tensor(1.0)).tolist() == [2, 3]


def test_a_kernel_with_memory_of_the_host_is_refused() -> None:
    with card(), pytest.raises(RuntimeError, match="a kernel is given memory of the host"):
        doubled[1,](there(1, 2), torch.empty(2), SIZE=2)


WAITING: list[Callable[[Tensor], object]] = [
    lambda x: x[0].item(),
    lambda x: x.cpu(),
    lambda x: x.tolist(),
    lambda x: bool(x[0] > 0),
    lambda x: x[x > 0],
    lambda x: x[[0, 1]],
    lambda x: x[x.argmax()],  # a single number is an index of the host's
    lambda x: x.nonzero(),
    lambda x: x.equal(x),
    lambda x: x.copy_(torch.ones(2)),
    lambda x: torch.tensor([1.0], device="cuda"),
    lambda x: torch.ones(2).to("cuda", non_blocking=True),  # from memory that is not locked
]
GOING_ON: list[Callable[[Tensor], object]] = [
    lambda x: x + 1,
    lambda x: x[1:],
    lambda x: x.index_select(0, x.argmax()[None]),
    lambda x: torch.where(x > 0, x, 0),
    lambda x: locked(1, 2).to("cuda", non_blocking=True),
    lambda x: x.copy_(locked(1, 2), non_blocking=True),
    lambda x: x.to("cpu", non_blocking=True),
]


@pytest.mark.parametrize(("work", "waits"), [*((w, 1) for w in WAITING), *((w, 0) for w in GOING_ON)])
def test_each_wait_is_noted(work: Callable[[Tensor], object], waits: int) -> None:
    with card() as tensors:
        x = there(1, 2)
        tensors.waits.clear()
        work(x)
        assert len(tensors.waits) == waits
        assert all(f"{__file__}:" in wait for wait in tensors.waits)


def test_what_is_sent_to_the_host_is_there_when_it_has_waited() -> None:
    with card():
        here, sent, later = locked(0, 0), torch.cuda.Event(), torch.cuda.Event()
        here.copy_(there(3, 4), non_blocking=True)
        sent.record()
        assert here.isnan().all() and not sent.query()
        there(1).to("cpu", non_blocking=True)
        later.record()
        sent.synchronize()
        assert here.tolist() == [3, 4]
        assert sent.query() and not later.query()


def test_what_the_host_changes_too_early_is_found() -> None:
    with pytest.raises(AssertionError, match="the host changed what the card had not read yet"), card():
        here = locked(1, 2)
        here.to("cuda", non_blocking=True)
        here.fill_(5)
        torch.cuda.synchronize()


@pytest.mark.parametrize("ordered", [True, False])
def test_streams_that_nothing_keeps_in_order_are_found(ordered: bool) -> None:
    def work() -> None:
        with card():
            x, other = there(1, 2), torch.cuda.Stream()
            x.add_(1)
            if ordered:
                other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                x.add_(1)
            torch.cuda.current_stream().wait_stream(other)
            assert x.tolist() == [3, 4]

    if ordered:
        work()
    else:
        with pytest.raises(AssertionError, match="stream 1 touches what stream 0 may still be at"):
            work()


@pytest.mark.parametrize("recorded", [True, False])
def test_memory_that_is_freed_while_another_stream_is_at_it_is_found(recorded: bool) -> None:
    def work() -> None:
        with card():
            x, other = there(1, 2), torch.cuda.Stream()
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                x.add_(1)
            if recorded:
                x.record_stream(other)  # type: ignore[arg-type]
            del x

    if recorded:
        work()
    else:
        with pytest.raises(AssertionError, match="memory of stream 0 is freed while stream 1 is at it"):
            work()


# ------------------------------------------------------------------ graphs


def record(work: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        try:
            return graph, work()
        finally:
            graph.capture_end()


def test_a_graph_computes_when_it_is_replayed_and_on_the_same_memory() -> None:
    def work() -> Tensor:
        doubled[1,](x, twice, SIZE=2)
        total.add_(1)
        return twice + total

    with card() as tensors:
        x, twice, total = there(1, 2), torch.zeros(2, device="cuda"), torch.zeros(2, device="cuda")
        graph, out = record(work)
        assert total.tolist() == [0, 0] and out.isnan().all()
        graph.replay()
        assert out.tolist() == [3, 5]
        x.fill_(10)
        graph.replay()
        assert out.tolist() == [22, 22] and tensors.replays == 2


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.cpu(),
        lambda x: x + x[0].item(),
        lambda x: x.copy_(locked(1, 2), non_blocking=True),
        lambda x: x.to("cpu", non_blocking=True),
    ],
)
def test_what_a_graph_cannot_do_again_is_refused(work: Callable[[Tensor], Tensor]) -> None:
    with card():
        x = there(1, 2)
        with pytest.raises(RuntimeError, match="is recorded"):
            record(lambda: work(x))


def test_nothing_is_left_behind() -> None:
    with card():
        x = there(1)
    assert not torch.cuda.is_available()
    with pytest.raises(AssertionError, match="while there is no card"):
        x + 1
