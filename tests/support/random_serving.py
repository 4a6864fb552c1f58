"""Policies of a few lines each, and engines that serve random requests under them, against brute force."""

from __future__ import annotations

import random

from toy import drive, expected, toy_engine

from turnout.core.interfaces.scheduling import SchedulingPolicy, Share
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.toy.workloads import random_cache, random_preemption, random_workload


class ShortestFirst(SchedulingPolicy):
    def order(self, view):
        yield from view.running
        yield from sorted(view.waiting, key=lambda r: r.pending)


class Priority(SchedulingPolicy):
    """Preempts running requests for more urgent ones."""

    def order(self, view):
        return sorted(view.running + view.waiting, key=_urgency)

    def victim(self, request, running):
        last = max((*running, request), key=_urgency)
        return last if last in running else None


class ChunkedPrefill(SchedulingPolicy):
    def order(self, view):
        yield from (r for r in view.running if r.decoding)
        yield from (Share(r, 5) for r in view.running if not r.decoding)
        yield from (Share(r, 5) for r in view.waiting)


class PrefillFirst(SchedulingPolicy):
    """Never mixes prompts and decoding; must ask `fits` or it would livelock."""

    def order(self, view):
        filling = [r for r in view.running if not r.decoding]
        return [r for r in (*filling, *view.waiting) if view.fits(r)] or view.running


class StaticBatch(SchedulingPolicy):
    def order(self, view):
        return view.running or view.waiting


class LongestPrefix(SchedulingPolicy):
    def order(self, view):
        yield from view.running
        yield from sorted(view.waiting, key=lambda r: -view.cached(r))


class Fair(SchedulingPolicy):
    """Least served user first; keeps state through `observe`."""

    def __init__(self):
        self.served = {}

    def order(self, view):
        yield from sorted(view.running, key=lambda r: self.served.get(r.priority, 0))
        yield from sorted(view.waiting, key=lambda r: self.served.get(r.priority, 0))

    def observe(self, request, tokens, now):
        user = request.priority
        self.served[user] = self.served.get(user, 0) + tokens


def _urgency(request):
    return (request.priority, request.arrival)


POLICIES = (Fcfs, ShortestFirst, Priority, ChunkedPrefill, PrefillFirst, StaticBatch, LongestPrefix, Fair)


def served(policy, trials, *, workload=random_workload, make=toy_engine):
    """The engines that served random requests, each held against brute force."""
    for trial in range(trials):
        rng = random.Random(trial)
        arrivals = list(workload(rng))
        kv, preemption = random_cache(rng, arrivals), random_preemption(rng)
        budget, slots = rng.randrange(5, 24), rng.randrange(4, 8)
        engine = make(policy(), kv, budget=budget, slots=slots, preemption=preemption)
        outcome = drive(engine, arrivals)
        for _, spec in arrivals:
            assert outcome.outputs(spec.id) == expected(spec), (trial, spec)
            assert len(outcome.finished[spec.id]) == spec.params.n
        assert_all_memory_is_free(kv)
        yield engine
