"""Whatever a policy answers, requests get on: what would be evicted for ever is served as it came."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from operator import attrgetter

import pytest
from one_in import one_in
from toy import drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.engine.engine import Engine
from turnout.core.errors import PolicyError
from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy, Share
from turnout.core.scheduling.preemption import Recompute
from turnout.core.types.request import RequestSpec, RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.deadline import Deadline
from turnout.plugins.schedulers.priority import Priority
from turnout.plugins.schedulers.srpt import Srpt
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.toy.workloads import random_cache, random_preemption, random_workload

Running = tuple[RequestView, ...]


class Hostile(SchedulingPolicy):
    """Orders and evicts at random, from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)

    def order(self, view: View) -> Iterable[Entry]:
        return self.shuffled(view.running + view.waiting)

    def shuffled(self, requests: Running) -> list[RequestView]:
        return self.rng.sample(requests, len(requests))

    def victim(self, request: RequestView, running: Running) -> RequestView | None:
        return self.rng.choice(running)


class EvictsTheOldest(Hostile):
    """Newcomers first, and for each the one that has run longest goes."""

    def order(self, view: View) -> Iterable[Entry]:
        return view.waiting + view.running

    def victim(self, request: RequestView, running: Running) -> RequestView | None:
        return running[0]


class EvictsTheNextRequest(EvictsTheOldest):
    """Running requests come first, and evict each other in a ring."""

    def order(self, view: View) -> Iterable[Entry]:
        return view.running + view.waiting

    def victim(self, request: RequestView, running: Running) -> RequestView | None:
        after = running.index(request) + 1 if request in running else 0
        return running[after % len(running)]


class EvictsItself(Hostile):
    def victim(self, request: RequestView, running: Running) -> RequestView | None:
        return request if request in running else running[0]


class EvictsNobody(Hostile):
    """Two who each need what the other has wait for each other."""

    def victim(self, request: RequestView, running: Running) -> RequestView | None:
        return None


class EvictsOneAndThinksBetterOfIt(Hostile):
    """Memory is taken from one, and is not enough; then no request gets it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.answers = 0

    def victim(self, request: RequestView, running: Running) -> RequestView | None:
        self.answers += 1
        others = [other for other in running if other != request]
        return self.rng.choice(others) if others and self.answers % 2 else None


class ServesTheNewestAlone(Hostile):
    """The others keep what they hold."""

    def order(self, view: View) -> Iterable[Entry]:
        return (*view.waiting[-1:], *view.running[-1:])

    def victim(self, request: RequestView, running: Running) -> RequestView | None:
        return running[-1]


class GivesATokenAtATime(Hostile):
    def order(self, view: View) -> Iterable[Entry]:
        return [Share(request, 1) for request in self.shuffled(view.waiting + view.running)]


class ChangesItsMind(Hostile):
    """Leaves out, caps and evicts requests at random, or evicts none."""

    def order(self, view: View) -> Iterable[Entry]:
        for request in self.shuffled(view.running + view.waiting):
            if self.rng.random() < 0.6:
                yield request if self.rng.random() < 0.7 else Share(request, self.rng.randrange(4))

    def victim(self, request: RequestView, running: Running) -> RequestView | None:
        return self.rng.choice([*running, None])


HOSTILE = [
    Hostile,
    EvictsTheOldest,
    EvictsTheNextRequest,
    EvictsItself,
    EvictsNobody,
    EvictsOneAndThinksBetterOfIt,
    ServesTheNewestAlone,
    GivesATokenAtATime,
    ChangesItsMind,
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterable[None]:
    """Faults are logged with a traceback: hundreds of them here."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("policy", one_in(2, HOSTILE, attrgetter("__name__")))
def test_every_request_is_served_and_right(policy: Callable[[int], SchedulingPolicy]) -> None:
    """Memory that the most demanding request fills, requests of several sequences, small chunks."""
    for seed in range(75):
        rng = random.Random(seed)
        arrivals = list(random_workload(rng))
        kv, preemption = random_cache(rng, arrivals), random_preemption(rng)
        budget, slots = rng.randrange(5, 24), rng.randrange(4, 8)
        machine = {"budget": budget, "slots": slots, "preemption": preemption, "strict": False}
        outcome = drive(toy_engine(policy(seed), kv, **machine), arrivals, max_steps=6000)
        for _, spec in arrivals:
            assert outcome.outputs(spec.id) == expected(spec), (seed, spec)
        assert_all_memory_is_free(kv)


ALONE = (1, 16, 4, 20)
BEAMS = (3, 4, 7, 34)
"""Sequences of each of two requests, tokens of prompt and output, and the memory: enough for one of them."""


def two_that_evict_each_other(
    case: tuple[int, int, int, int], *, strict: bool, policy: SchedulingPolicy | None = None
) -> Engine:
    n, prompt, tokens, memory = case
    kv, budget = toy_kv(memory, 1, prefix_caching=False), 8 if n > 1 else 4
    engine = toy_engine(policy or EvictsTheOldest(), kv, budget=budget, slots=8, strict=strict)
    for name in ("a", "b"):
        engine.add(one_of_two(name, n, prompt, tokens))
    return engine


def one_of_two(name: str, n: int, prompt: int, tokens: int) -> RequestSpec:
    text = [1 + (i * i + ord(name)) % 6 for i in range(prompt)]
    return toy_request(name, text, "parallel" if n > 1 else "greedy", tokens, n=n)


@pytest.mark.parametrize("case", [ALONE, BEAMS])
def test_two_that_evict_each_other_for_ever_are_served(case: tuple[int, int, int, int]) -> None:
    """Each came back, was caught up in part, and had to go again: no request ever got a token more."""
    engine = two_that_evict_each_other(case, strict=False)
    outcome = drive(engine, [], max_steps=200)
    for name in ("a", "b"):
        assert outcome.outputs(name) == expected(one_of_two(name, *case[:3]))
    assert engine.stats().policy_faults >= 1


def test_that_is_fatal_where_faults_are() -> None:
    with pytest.raises(PolicyError, match=r"EvictsTheOldest .* had \d+ requests evicted without progress"):
        drive(two_that_evict_each_other(BEAMS, strict=True), [], max_steps=200)


class Counting(EvictsTheOldest):
    """Knows how often it was asked."""

    asked = 0

    def order(self, view: View) -> Iterable[Entry]:
        self.asked += 1
        return super().order(view)


def test_the_policy_is_asked_again_when_one_of_them_has_ended() -> None:
    policy = Counting()
    engine = two_that_evict_each_other(BEAMS, strict=False, policy=policy)
    while not engine.stats().policy_faults:
        engine.step()
    before, ended = policy.asked, False
    while not ended:
        assert policy.asked == before
        ended = any(delta.finish_reason for delta in engine.step())
    while engine.stats().running + engine.stats().waiting == 2:  # it has more choices
        engine.step()
    engine.step()
    assert policy.asked > before


def test_another_policy_is_asked_at_once() -> None:
    engine = two_that_evict_each_other(BEAMS, strict=False)
    while not engine.stats().policy_faults:
        engine.step()
    engine.scheduler.policy = policy = Counting()
    engine.step()
    assert policy.asked


@pytest.mark.parametrize("policy", [Priority, Srpt, Deadline])
def test_policies_that_preempt_with_reason_are_never_overruled(policy: type[SchedulingPolicy]) -> None:
    """Strict: a fault would raise."""
    preemptions = 0
    for seed in range(150):
        rng = random.Random(seed)
        arrivals = list(random_workload(rng))
        kv, budget, slots = random_cache(rng, arrivals), rng.randrange(1, 24), rng.randrange(4, 8)
        engine = toy_engine(policy(), kv, budget=max(budget, slots), slots=slots, preemption=Recompute())
        drive(engine, arrivals)
        preemptions += engine.stats().preemptions
    assert preemptions > 25
