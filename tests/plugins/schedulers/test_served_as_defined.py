"""Each policy serves, step by step, whom its definition says: compared with brute force, token by token."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest
from brute_server import (
    BruteServer,
    DecodesThenChunks,
    Definition,
    EarliestDeadline,
    FeedbackQueue,
    Job,
    LongestPrefix,
    OneBatchAtATime,
    PromptsThenDecodes,
    answer,
)
from toy import toy_engine, toy_kv, toy_request

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.request import RequestSpec, RequestView
from turnout.plugins.schedulers.deadline import Deadline
from turnout.plugins.schedulers.lpm import LongestPrefixMatch
from turnout.plugins.schedulers.mlfq import Mlfq
from turnout.plugins.schedulers.prefill_first import PrefillFirst
from turnout.plugins.schedulers.sarathi import Sarathi
from turnout.plugins.schedulers.static import Static

FEW, MANY = 100, 500
"""Traces for each policy, over all its ways."""

DEFINED = {
    "deadline, drop": (lambda: Deadline(), lambda: EarliestDeadline("drop")),
    "deadline, last": (lambda: Deadline("last"), lambda: EarliestDeadline("last")),
    "mlfq": (lambda: Mlfq(2, 3, 7.0), lambda: FeedbackQueue(2, 3, 7.0)),
    "lpm": (lambda: LongestPrefixMatch(6.0, 3), lambda: LongestPrefix(6.0, 3)),
    "sarathi": (lambda: Sarathi(4), lambda: DecodesThenChunks(4)),
    "prefill-first": (lambda: PrefillFirst(), lambda: PromptsThenDecodes()),
    "static": (lambda: Static(3), lambda: OneBatchAtATime(3)),
}


def random_trace(rng: random.Random) -> list[tuple[int, RequestSpec]]:
    shared = [rng.randrange(1, 7) for _ in range(6)]
    return [
        (
            step := rng.randrange(9),
            msgspec.structs.replace(
                toy_request(
                    f"r{i}",
                    shared[: rng.randrange(7)] + [rng.randrange(1, 7) for _ in range(rng.randrange(1, 6))],
                    "greedy",
                    rng.randrange(1, 7),
                ),
                arrival=rng.choice([None, step - 0.5]),
                deadline=rng.choice([None, rng.randrange(3, 30)]),
                ttft_deadline=rng.choice([None, rng.randrange(1, 12)]),
            ),
        )
        for i in range(rng.randrange(2, 7))
    ]


class Served:
    """An engine on a virtual clock, and what it computed in each step."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.now = 0.0
        self.tokens: dict[str, list[int]] = {}
        self.dropped: set[str] = set()
        self._plan: list[tuple[str, int]] = []
        self._run = engine.runner.run
        engine.clock = lambda: self.now
        engine.runner.run = self._note

    def _note(self, plan):
        self._plan = [(chunk.sequence.request.id, len(chunk.tokens)) for chunk in plan.chunks]
        return self._run(plan)

    def step(self, now: float) -> list[tuple[str, int]]:
        self.now, self._plan = now, []
        for delta in self.engine.step():
            if delta.error:
                assert delta.error_kind == "timeout"
                self.dropped.add(delta.request_id)
            self.tokens.setdefault(delta.request_id, []).extend(delta.tokens)
        return self._plan


@pytest.mark.parametrize("traces", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", DEFINED)
def test_every_step_serves_whom_the_definition_says(name, traces):
    make_policy, make_definition = DEFINED[name]
    ways = sum(other.partition(",")[0] == name.partition(",")[0] for other in DEFINED)
    for trial in range(traces // ways):
        rng = random.Random(trial)
        trace = random_trace(rng)
        # Places of the dropped are free from the next step on: with enough of them it makes no difference.
        slots = len(trace) if name == "deadline, drop" else rng.randrange(1, 5)
        budget = rng.randrange(2, 13)
        kv = toy_kv(400, 1)
        served = Served(toy_engine(make_policy(), kv, budget=budget, slots=slots))
        brute = BruteServer(make_definition(), budget, slots)
        step = 0
        while served.engine.busy or step < 10:
            served.now = float(step)
            for _, spec in (entry for entry in trace if entry[0] == step):
                served.engine.add(spec)
                brute.add(spec, served.now)
            assert served.step(float(step)) == brute.step(float(step)), (trial, step)
            step += 1
            assert step < 500, "livelock"
        assert served.dropped == brute.dropped
        assert kv.free == kv.capacity
        for _, spec in trace:
            tokens, right = served.tokens.get(spec.id, []), answer(spec)
            assert tokens == (right[: len(tokens)] if spec.id in served.dropped else right)


# ------------------------------------------------------------------ preemption for want of memory


class Witness(SchedulingPolicy):
    """Holds a policy's choice of victims against its definition's."""

    def __init__(self, policy: SchedulingPolicy, definition: Definition) -> None:
        self.head_of_line = policy.head_of_line
        self.policy = policy
        self.brute = BruteServer(definition, 0, 0)
        self.jobs: dict[RequestView, Job] = {}
        self.newcomers = self.runners = 0

    def order(self, view) -> Iterator:
        self.brute.planned.append(view.now)
        for request in view.waiting:
            if request not in self.jobs:
                spec = toy_request(request.id, list(request.prompt), "greedy", request.max_tokens)
                deadlines = {"deadline": request.deadline, "ttft_deadline": request.ttft_deadline}
                after = {k: None if v is None else v - request.arrival for k, v in deadlines.items()}
                self.jobs[request] = Job.of(msgspec.structs.replace(spec, **after), request.arrival)
        return self.policy.order(view)

    def victim(self, request, running):
        chosen = self.policy.victim(request, running)
        self.brute.running = [self.jobs[other] for other in running]
        right = self.brute.definition.victim(self.brute, self.jobs[request])
        assert (None if chosen is None else self.jobs[chosen]) is right
        if chosen is not None:
            self.runners += request in running
            self.newcomers += request not in running
        return chosen

    def observe(self, request, tokens, now) -> None:
        self.jobs[request].times += [self.brute.now] * tokens
        self.policy.observe(request, tokens, self.brute.now)


@pytest.mark.parametrize("name", ["deadline, last", "mlfq"])
def test_memory_is_taken_from_whom_the_definition_says(name):
    make_policy, make_definition = DEFINED[name]
    newcomers = runners = 0
    for trial in range(120):
        rng = random.Random(trial)
        trace = random_trace(rng)
        witness = Witness(make_policy(), make_definition())
        most = max(len(spec.prompt) + spec.params.max_tokens for _, spec in trace)
        kv = toy_kv(most + rng.randrange(6), 1, prefix_caching=False)
        served = Served(toy_engine(witness, kv, budget=rng.randrange(4, 13), slots=4))
        step = 0
        while served.engine.busy or step < 10:
            served.now = float(step)
            for _, spec in (entry for entry in trace if entry[0] == step):
                served.engine.add(msgspec.structs.replace(spec, arrival=None))
            served.step(float(step))
            step += 1
            assert step < 2000, "livelock"
        assert all(served.tokens[spec.id] == answer(spec) for _, spec in trace)
        newcomers, runners = newcomers + witness.newcomers, runners + witness.runners
    assert newcomers > 20 and runners > 20, "both who waits and who runs must have asked for memory"
