"""What waits is kept sorted from step to step, as if it had been sorted anew in each."""

from __future__ import annotations

import random

import pytest

from turnout.core.scheduling.order import Order, Stretch
from turnout.core.scheduling.queues import Queues
from turnout.core.scheduling.step_view import StepView
from turnout.core.types.views import KVView, View
from turnout.plugins.schedulers.last_runner import LastRunner
from turnout.plugins.schedulers.ranked_queue import RankedQueue


class Waiting:
    """Stands in for a request and for its view."""

    width = 1
    status = "new"
    pooling = None

    def __init__(self, rank):
        self.rank = rank
        self.view = self


def rank_of(request):
    return request.rank


class Steps:
    """Real queues of stand-ins, and the views of their steps."""

    def __init__(self, rng):
        self.rng = rng
        self.queues = Queues()
        self._number = 0

    def next_view(self):
        """As the queue changes: some leave, some are preempted, others arrive."""
        rng, queues = self.rng, self.queues
        waiting = queues.waiting
        many = len(waiting) if rng.random() < 0.1 else 3
        for request in rng.sample(waiting, min(rng.randrange(many + 1), len(waiting))):
            queues.admit(request) if rng.random() < 0.7 else queues.remove(request)
        for request in rng.sample(queues.running, min(rng.choice([0, 0, 1, 3]), len(queues.running))):
            queues.preempt(request)  # one, it may be, that waited at the last step
        for _ in range(rng.choice([0, 1, 2, 90])):
            queues.arrive(Waiting(rng.randrange(9)))
        if rng.random() < 0.1:  # a step for which the policy is not asked
            queues.changes.take()
            self._number += 1
        return self._view()

    def _view(self):
        self._number += 1
        view = View(0.0, (), (), KVView(0, 0), bool, int, float)
        return StepView.of(view, self._number, self.queues.changes.take(), lambda: self.queues.waiting_views)


@pytest.mark.parametrize("seed", range(40))
def test_the_queue_is_as_sorted_anew(seed):
    steps, queue = Steps(random.Random(seed)), RankedQueue()
    few = 0
    for _ in range(60):
        view = steps.next_view()
        few += view.change is not None
        queue.update(view, rank_of)
        assert queue.requests == sorted(view.waiting, key=rank_of)
        assert queue.ranks == {request: request.rank for request in view.waiting}
    assert few > 10


@pytest.mark.parametrize("seed", range(40))
def test_a_change_tells_the_step_before_from_this_one(seed):
    steps, before = Steps(random.Random(seed)), ()
    for _ in range(60):
        queues, rng = steps.queues, steps.rng
        for request in rng.sample(queues.waiting, min(rng.choice([0, 1, 5]), len(queues.waiting))):
            queues.admit(request)
        for request in rng.sample(queues.running, min(rng.choice([0, 2]), len(queues.running))):
            queues.preempt(request)
        for _ in range(rng.choice([0, 3, 70])):
            queues.arrive(Waiting(0))
        change, waiting = queues.changes.take(), queues.waiting_views
        if change is not None:
            stayed = tuple(request for request in before if request not in set(change.left))
            assert (*change.front, *stayed, *change.back) == waiting
        before = waiting


def test_requests_of_a_view_are_listed_when_they_are_asked_for():
    listed = []
    view = View(0.0, (), (), KVView(0, 0), bool, int, float)
    step = StepView.of(view, 1, None, lambda: listed.append(1) or ("a",))
    assert listed == []
    assert step.waiting == ("a",)
    assert step._replace(running=("b",)).waiting == ("a",)
    assert step._replace(running=("b",)).running == ("b",)
    assert list(step)[2] == ("a",)
    assert listed == [1]


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_the_last_runner_is_that_of_all_who_run_now(seed, newest):
    rng = random.Random(seed)
    last = LastRunner(rank_of, newest=newest)
    running = [Waiting(rng.randrange(9)) for _ in range(30)]
    for _ in range(10):
        last.begin_step(sorted(running, key=rank_of) if newest and rng.random() < 0.5 else ())
        for _ in range(rng.randrange(8)):
            found = last.of(tuple(running))
            assert found is max(reversed(running) if newest else running, key=rank_of)
            if rng.random() < 0.7 and len(running) > 5:
                running.remove(found)
            if rng.random() < 0.3:  # another is dropped
                del running[rng.randrange(len(running))]
            running += [Waiting(rng.randrange(9)) for _ in range(rng.choice([0, 0, 1, 5]))]


@pytest.mark.parametrize("seed", range(20))
def test_running_requests_stand_among_those_that_wait(seed):
    rng, queue = random.Random(seed), RankedQueue()
    waiting = tuple(Waiting(rng.randrange(20)) for _ in range(50))
    running = [Waiting(rng.randrange(20)) for _ in range(10)]
    queue.update(View(0.0, (), waiting, KVView(0, 0), bool, int, float), rank_of)
    assert list(queue.among(running, rank_of)) == sorted([*running, *waiting], key=rank_of)
    assert list(queue.behind(running)) == [*running, *sorted(waiting, key=rank_of)]


def test_a_closed_order_names_only_what_does_not_wait():
    order = Order(["a", Stretch(["b", "c"]), "d", Stretch(["e"])])
    assert list(order) == ["a", "b", "c", "d", "e"]
    assert list(order.up_to(lambda: True)) == ["a", "d"]
