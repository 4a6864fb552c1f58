"""The conformance suite of scheduling policies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import ClassVar

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.messages import Delta
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.views import View
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.testing.checks.brute_force import assert_expected_tokens
from turnout.testing.checks.memory_leaks import (
    assert_all_memory_is_free,
    assert_requests_are_forgotten,
    requests_served,
)
from turnout.testing.checks.mutation_check import MutationCheckedPolicy
from turnout.testing.checks.plans import plans_of
from turnout.testing.checks.runners_first import RunnersFirstPolicy, declares_runners_first
from turnout.testing.factories import made_view
from turnout.testing.suites.embedded import GREEDY
from turnout.testing.suites.suite import Suite, not_for_it, slow
from turnout.testing.toy.decodings import ToyGreedy
from turnout.testing.toy.engine import drive, toy_engine, toy_request
from turnout.testing.toy.runner import toy_kv
from turnout.testing.toy.workloads import RandomCase

__all__ = ["SchedulingPolicySuite"]


class SchedulingPolicySuite(Suite[SchedulingPolicy]):
    """Every request is served once, completely and with the right tokens, in whatever order.

    The class attributes say what a policy claims beyond that; what it does not claim is not tested.
    """

    kind = "scheduler"
    light = True

    bound: ClassVar[float | None] = None
    """Seconds (here: steps) within which any request is served, although others arrive at 1.5 times the rate
    that can be served, and have done so for 20 seconds. None: no claim."""
    fairness: ClassVar[float | None] = None
    """Output tokens by which the service of two clients may differ while both have requests waiting. None: no
    claim."""
    drops: ClassVar[bool] = False
    """The policy may drop requests whose deadline has passed."""
    milliseconds: ClassVar[float] = 50.0
    """Time that `order` may take for 1,000 waiting and 250 running requests."""

    # -------------------------------------------------------------- every request is served

    def test_every_request_gets_its_tokens_once(self) -> None:
        """The tokens are those of brute force, with any memory, chunks and preemptions."""
        preemptions = 0
        for seed in range(self.trials):
            trial = RandomCase.draw(seed)
            engine = trial.engine(self.make())
            outcome = drive(engine, trial.arrivals)
            for _, spec in trial.arrivals:
                assert_expected_tokens(spec, outcome, case=f"seed {seed}")
                assert len(outcome.finished[spec.id]) == spec.params.n, (
                    f"seed {seed}: {len(outcome.finished[spec.id])} choices of request {spec.id} ended; "
                    f"expected {spec.params.n}"
                )
            assert_all_memory_is_free(trial.kv)
            preemptions += engine.stats().preemptions
        lowered = self.trials < type(self).trials
        assert preemptions or lowered, (
            "no request was preempted in any workload, so preemption was not tested; raise `trials`"
        )

    def test_no_request_is_dropped_before_its_deadline(self) -> None:
        """Only requests with a deadline may be dropped, and only if the policy claims to (`drops`)."""
        for seed in range(self.trials):
            trial = RandomCase.draw(seed, deadlines=30.0)
            outcome = drive(trial.engine(self.make()), trial.arrivals, errors=True)
            for _, spec in trial.arrivals:
                if spec.id not in outcome.errors:
                    assert_expected_tokens(spec, outcome, case=f"seed {seed}, with deadlines")
                    continue
                assert self.drops, (
                    f"`order` dropped request {spec.id}; set `drops` if the policy is meant to drop "
                    "requests whose deadline has passed"
                )
                timed = spec.deadline is not None or spec.ttft_deadline is not None
                assert timed, (
                    f"`order` dropped request {spec.id}, which has no deadline: {outcome.errors[spec.id]}"
                )
            assert_all_memory_is_free(trial.kv)

    def test_clients_that_leave_are_forgotten(self) -> None:
        """Waiting and running requests are aborted while others are served."""
        for seed in range(self.trials):
            trial = RandomCase.draw(seed)
            engine = trial.engine(self.make())
            for _, spec in trial.arrivals:
                engine.add(spec)
            for number, (_, spec) in enumerate(trial.arrivals):
                engine.step()
                if number % 2:
                    engine.abort(spec.id)
            drive(engine, [])
            assert_all_memory_is_free(trial.kv)

    # -------------------------------------------------------------- progress

    def test_others_progress_while_the_first_in_line_does_not_fit(self) -> None:
        """A request for nearly all memory is first in line; the others make progress nevertheless."""
        for kv in (toy_kv(12, 4, prefix_caching=False), ContiguousCache(PoolSize(48))):
            engine = toy_engine(self.make(), kv, budget=16, slots=4, strict=True)
            early = [(0, _job(f"early{i}", 4, 8)) for i in range(3)]
            head, late = (1, _job("head", 38, 8)), [(2, _job(f"late{i}", 3, 5)) for i in range(8)]
            outcome = drive(engine, [*early, head, *late], max_steps=2000)
            assert len(outcome.finished) == 12, (
                f"{self._name}: {len(outcome.finished)} of 12 requests were served, while the first in line "
                "did not fit; `order` must list the others, too"
            )
            assert_all_memory_is_free(kv)

    def test_a_prompt_longer_than_the_token_budget_is_served(self) -> None:
        engine = toy_engine(self.make(), toy_kv(64, 4), budget=5, slots=4, strict=True)
        specs = [_job("long", 100, 4), *(_job(f"short{i}", 3, 12) for i in range(6))]
        outcome = drive(engine, [(0, spec) for spec in specs], max_steps=1000)
        assert len(outcome.finished) == len(specs), (
            f"{self._name}: {len(outcome.finished)} of {len(specs)} requests were served beside a prompt of "
            "100 tokens with a budget of 5 tokens a step"
        )

    def test_no_request_waits_longer_than_the_claimed_bound(self) -> None:
        """Requests arrive at 1.5 times the rate that can be served; one among them is unlike the rest."""
        bound = self.bound
        if bound is None:
            not_for_it("the policy claims no bound on waiting (`bound`)")
        for prompt, tokens, others in ((3, 20, 4), (30, 4, 4), (3, 4, 16)):
            waited = self._wait_of_one_unlike(prompt, tokens, others)
            assert waited <= bound, (
                f"a request of {prompt} prompt and {tokens} output tokens, among others of 3 and {others}, "
                f"was served {waited:g} s after its arrival; the policy claims `bound` = {bound:g} s"
            )

    def test_clients_share_within_the_claimed_bound(self) -> None:
        """One client has ten times as many requests waiting as the other."""
        fairness = self.fairness
        if fairness is None:
            not_for_it("the policy claims no fairness between clients (`fairness`)")
        engine = _one_second_steps(self.make(), toy_kv(64, 4, prefix_caching=False), slots=4)
        for number in range(220):
            client = "modest" if number % 11 == 0 else "flood"
            engine.add(_job(str(number), 4, 8, client=client))
        served = {"modest": 0, "flood": 0}
        lead = least = most = 0
        for _ in range(30):  # both have requests waiting until then
            for delta in engine.step():
                served["modest" if int(delta.request_id) % 11 == 0 else "flood"] += len(delta.tokens)
            lead = served["flood"] - served["modest"]
            least, most = min(least, lead), max(most, lead)
        assert most - least <= fairness, (
            f"the clients' service differs by {most - least} output tokens while both wait ({served}); the "
            f"policy claims `fairness` = {fairness:g}"
        )

    # -------------------------------------------------------------- contract

    def test_views_are_not_changed(self) -> None:
        for seed in range(self.trials):
            trial, policy = RandomCase.draw(seed), MutationCheckedPolicy(self.make())
            drive(trial.engine(policy), trial.arrivals)
            assert policy.orders, "`order` was never called"

    def test_the_same_workload_is_planned_the_same_way(self) -> None:
        for seed in range(min(8, self.trials)):
            first, again = plans_of(self.make(), seed), plans_of(self.make(), seed)
            assert first == again, (
                f"two runs of the same workload (seed {seed}) were planned differently; `order` and "
                "`victim` must depend only on their arguments and on earlier calls"
            )

    def test_plans_do_not_depend_on_the_hashes_of_strings(self) -> None:
        """Python hashes strings otherwise in each process, so a set of them has another order in each."""
        self.same_elsewhere(
            plans_of, range(min(8, self.trials)), "`order` must not depend on `hash` of a string"
        )

    def test_requests_that_ended_are_forgotten(self) -> None:
        """A policy that keeps their views keeps all that they had, for as long as the server runs."""
        policy = self.make()
        alive = requests_served(lambda: toy_engine(policy, toy_kv(64, 4), budget=16, slots=4))
        list(policy.order(made_view()))
        assert_requests_are_forgotten(alive)

    def test_running_requests_come_first_where_the_policy_declares_it(self) -> None:
        """A policy that declares `runners_first` lets simulations skip steps; a false one changes them."""
        if not declares_runners_first(self.make()):
            not_for_it("the policy does not declare `runners_first`")
        kind = type(self.make())
        for name in ("victim", "observe"):
            assert getattr(kind, name) is getattr(SchedulingPolicy, name), (
                f"{kind.__name__} declares `runners_first`, so its `{name}` must be the default"
            )
        decoded = 0
        for seed in range(self.trials):
            trial, policy = RandomCase.draw(seed), RunnersFirstPolicy(self.make(), self.make())
            drive(trial.engine(policy), trial.arrivals)
            decoded += policy.decoded
        assert decoded or self.trials < type(self).trials, "no request only decoded; raise `trials`"

    def test_an_empty_view_has_an_empty_order(self) -> None:
        found = list(self.make().order(made_view()))
        assert found == [], f"`order` returned {found} for a view without requests; expected an empty list"

    def test_an_order_takes_no_longer_than_claimed(self) -> None:
        policy = self.make()
        running, waiting = [_waiting(i) for i in range(250)], [_waiting(i) for i in range(250, 1250)]
        view = made_view(waiting, running, now=2000.0)
        best = min(_seconds(policy, view) for _ in range(5)) * 1000
        assert best <= self.milliseconds, (
            f"`order` takes {best:.0f} ms for 1,250 requests, and every step waits for it; expected at most "
            f"{self.milliseconds:g} ms (`milliseconds`)"
        )

    @slow
    def test_tokens_of_a_real_model_are_the_same_in_any_order(self) -> None:
        """Also where memory is so scarce that requests are preempted."""
        embedded = self.embedded()
        wanted = embedded.tokens(GREEDY, scheduler="fcfs")
        found = embedded.unmoved(GREEDY, scheduler=self.spec)
        assert found == wanted, "requests got other tokens than when served by `fcfs`; expected the same"

    # -------------------------------------------------------------- details

    @property
    def _name(self) -> str:
        return type(self.make()).__name__

    def _wait_of_one_unlike(self, prompt: int, tokens: int, others: int) -> float:
        """Seconds until a request unlike the others has all its tokens; infinite if it never does."""
        kv = toy_kv(64, 1, prefix_caching=False)
        engine = _one_second_steps(self.make(), kv, slots=2)
        stream = _endless(rate=3 / others, tokens=others)
        upcoming, bound = next(stream), self.bound or 0.0
        victim = _job("victim", prompt, tokens, arrival=20.0)
        for second in range(int(20 + bound) + 2):
            if second == 20:
                engine.add(victim)
            while upcoming.arrival is not None and upcoming.arrival <= second:
                engine.add(upcoming)
                upcoming = next(stream)
            if any(d.request_id == "victim" and d.finish_reason for d in engine.step()):
                return second - 20.0
        return float("inf")


def _job(
    name: str, prompt: int, tokens: int, *, client: str = "", arrival: float | None = None
) -> RequestSpec:
    """A request for exactly `tokens` output tokens."""
    spec = toy_request(name, [1 + i % 6 for i in range(prompt)], "greedy", tokens)
    params = msgspec.structs.replace(spec.params, ignore_eos=True)
    return msgspec.structs.replace(spec, params=params, client=client, arrival=arrival)


def _endless(rate: float, tokens: int) -> Iterator[RequestSpec]:
    """Requests without end, evenly spread, `rate` a second."""
    for number in count():
        yield _job(f"other{number}", 3, tokens, arrival=number / rate, client=str(number % 3))


def _one_second_steps(policy: SchedulingPolicy, kv: KVCache, *, slots: int) -> Engine:
    """An engine whose clock counts its steps."""
    engine = toy_engine(policy, kv, budget=64, slots=slots, strict=True)
    step, made = engine.step, iter(count(1))
    now = [0.0]

    def stepping() -> list[Delta]:
        deltas = step()
        now[0] = float(next(made))
        return deltas

    engine.clock = lambda: now[0]
    engine.step = stepping  # type: ignore[method-assign]
    return engine


def _waiting(number: int) -> Request:
    params = SamplingParams(max_tokens=1 + number % 200)
    spec = RequestSpec(
        id=f"r{number}",
        prompt=[1] * (1 + number * 7 % 90),
        params=params,
        seed=number,
        client=f"client{number % 20}",
        priority=number % 3,
        deadline=1000.0 + number % 50,
    )
    return Request(spec, ToyGreedy(), float(number), len(spec.prompt) + 200, frozenset())


def _seconds(policy: SchedulingPolicy, view: View) -> float:
    start = time.perf_counter()
    list(policy.order(view))
    return time.perf_counter() - start
