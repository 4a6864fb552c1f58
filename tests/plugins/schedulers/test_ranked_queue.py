"""What waits is kept sorted from step to step, as if it had been sorted anew in each."""

from __future__ import annotations

import random

import pytest

from turnout.core.scheduling.order import Order, Stretch
from turnout.plugins.schedulers.ranked_queue import RankedQueue, change_of


class Waiting:
    """Stands in for a request's view."""

    def __init__(self, rank):
        self.rank = rank


def rank_of(request):
    return request.rank


def next_step(rng, waiting):
    """As the queue changes: some leave, some are preempted, others arrive."""
    leaving = (
        rng.choice([0, 0, 1, 3, len(waiting)]) if rng.random() < 0.9 else rng.randrange(len(waiting) + 1)
    )
    gone = set(rng.sample(range(len(waiting)), min(leaving, len(waiting))))
    stayed = [request for place, request in enumerate(waiting) if place not in gone]
    front = [Waiting(rng.randrange(9)) for _ in range(rng.choice([0, 0, 1, 3]))]
    if gone and rng.random() < 0.2:  # one that was admitted and preempted while no order was asked for
        front.append(waiting[min(gone)])
    back = [Waiting(rng.randrange(9)) for _ in range(rng.choice([0, 1, 2, 90]))]
    return (*front, *stayed, *back)


@pytest.mark.parametrize("seed", range(40))
def test_the_queue_is_as_sorted_anew(seed):
    rng, queue, waiting = random.Random(seed), RankedQueue(), ()
    few = 0
    for _ in range(60):
        before, waiting = waiting, next_step(rng, waiting)
        few += change_of(before, waiting, set(before)) is not None
        queue.update(waiting, rank_of)
        assert queue.requests == sorted(waiting, key=rank_of)
        assert queue.ranks == {request: request.rank for request in waiting}
    assert few > 10


@pytest.mark.parametrize("seed", range(200))
def test_a_change_is_found_or_given_up(seed):
    rng = random.Random(seed)
    before = tuple(Waiting(0) for _ in range(rng.choice([0, 5, 300, 1000])))
    after = next_step(rng, before)
    if rng.random() < 0.2 and len(after) > 2:
        after = (*after[1:], after[0])
    change = change_of(before, after, set(before))
    if change is not None:
        stayed = tuple(request for request in before if request not in set(change.left))
        assert (*change.front, *stayed, *change.back) == after


def test_of_thousands_the_one_that_left_is_found():
    before = tuple(Waiting(0) for _ in range(10_000))
    newcomer = Waiting(0)
    change = change_of(before, (*before[:7000], *before[7001:], newcomer), set(before))
    assert change == ((), (before[7000],), (newcomer,))


@pytest.mark.parametrize("seed", range(20))
def test_running_requests_stand_among_those_that_wait(seed):
    rng, queue = random.Random(seed), RankedQueue()
    waiting = tuple(Waiting(rng.randrange(20)) for _ in range(50))
    running = [Waiting(rng.randrange(20)) for _ in range(10)]
    queue.update(waiting, rank_of)
    assert list(Order(queue.among(running, rank_of))) == sorted([*running, *waiting], key=rank_of)
    assert list(queue.behind(running)) == [*running, *sorted(waiting, key=rank_of)]


def test_a_closed_order_names_only_what_does_not_wait():
    order = Order(["a", Stretch(["b", "c"]), "d", Stretch(["e"])])
    assert list(order) == ["a", "b", "c", "d", "e"]
    assert list(order.up_to(lambda: True)) == ["a", "d"]
