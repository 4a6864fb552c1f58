"""The conformance suite of admission policies."""

from __future__ import annotations

import math
import random
from typing import ClassVar

from turnout.core.interfaces.admission import AdmissionPolicy, Load, Refusal
from turnout.core.types.request import Request, RequestView
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.views import KVView
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.brute_force import assert_expected_tokens
from turnout.testing.checks.memory_leaks import (
    assert_all_memory_is_free,
    assert_requests_are_forgotten,
    requests_served,
)
from turnout.testing.factories.made import made_request
from turnout.testing.suites.embedded import GREEDY
from turnout.testing.suites.suite import Suite, not_for_it, slow
from turnout.testing.toy.engine import drive, toy_engine
from turnout.testing.toy.runner import toy_kv
from turnout.testing.toy.workloads import RandomCase

__all__ = ["AdmissionPolicySuite"]

DAY_SECONDS = 86_400


class AdmissionPolicySuite(Suite[AdmissionPolicy]):
    """An answer is None or a refusal that a client can be given, and whom it takes on is served as ever."""

    kind = "admission"
    light = True

    idle: ClassVar[bool] = True
    """An engine that has nothing to do takes every request on."""

    def test_an_answer_is_none_or_a_refusal(self) -> None:
        for seed in range(self.trials):
            for answer in answers_of(self.make(), seed):
                assert answer is None or isinstance(answer, Refusal), (
                    f"`admit` returned {answer!r}; expected None or a Refusal"
                )
                if answer is None:
                    continue
                assert isinstance(answer.reason, str) and answer.reason.strip(), (
                    f"`admit` refused without saying why: {answer!r}"
                )
                assert math.isfinite(answer.retry_after) and 0 <= answer.retry_after <= DAY_SECONDS, (
                    f"`admit` refused with retry_after={answer.retry_after}; expected 0 to 86,400 s"
                )

    def test_the_same_requests_get_the_same_answers(self) -> None:
        for seed in range(self.trials):
            ways = [answers_of(self.make(), seed) for _ in range(2)]
            assert ways[0] == ways[1], (
                f"two policies that were asked the same (seed {seed}) answered differently; `admit` must "
                "depend only on its arguments and on earlier calls"
            )

    def test_answers_do_not_depend_on_the_hashes_of_strings(self) -> None:
        self.same_elsewhere(
            answers_of, range(min(8, self.trials)), "`admit` must not depend on `hash` of a string"
        )

    def test_the_load_is_ignored_unless_the_policy_watches_it(self) -> None:
        if self.make().watches:
            not_for_it("the policy watches the load (`watches`)")
        rng, policies = random.Random(0), (self.make(), self.make())
        for number in range(200):
            request, idle = _request(number).view, _idle(float(number))
            answers = [policies[0].admit(request, _load(rng, number)), policies[1].admit(request, idle)]
            assert answers[0] == answers[1], "`watches` is False, but `admit` answered by the load"

    def test_an_idle_engine_takes_all_on(self) -> None:
        if not self.idle:
            not_for_it("the policy does not claim it (`idle`)")
        for number in range(50):
            answer = self.make().admit(_request(number).view, _idle(float(number)))
            assert answer is None, (
                f"`admit` refused a request of an engine that has nothing to do: {answer}; if that is meant, "
                "set `idle = False`"
            )

    def test_what_it_takes_on_is_served(self) -> None:
        """And what it refuses leaves nothing behind."""
        for seed in range(self.trials):
            trial = RandomCase.draw(seed)
            engine = trial.engine(Fcfs(), admission=self.make())
            outcome = drive(engine, trial.arrivals, errors=True)
            for _, spec in trial.arrivals:
                if spec.id not in outcome.errors:
                    assert_expected_tokens(spec, outcome, case=f"seed {seed}")
            faults = engine.shedding.faults
            assert not faults, f"seed {seed}: {faults} calls raised, or gave no valid answer; see the log"
            assert_all_memory_is_free(trial.kv)

    def test_requests_that_ended_are_forgotten(self) -> None:
        policy = self.make()
        alive = requests_served(lambda: toy_engine(Fcfs(), toy_kv(64, 4), admission=policy))
        assert_requests_are_forgotten(alive)

    @slow
    def test_answers_of_a_real_model_are_the_same_with_it(self) -> None:
        embedded = self.embedded()
        found = embedded.unmoved(GREEDY, admission=self.spec)
        assert found == embedded.tokens(GREEDY), "requests got other tokens than without it"


def answers_of(policy: AdmissionPolicy, seed: int) -> list[Refusal | None]:
    """What a policy that has been asked nothing yet answers to random requests under random loads."""
    rng, answers = random.Random(seed), []
    for number in range(60):
        request = _request(number, n=rng.randint(1, 4))
        answers.append(policy.admit(request.view, _load(rng, number)))
        if rng.random() < 0.5:
            request.output_tokens = rng.randrange(60)
            policy.observe(request.view)
    return answers


def _load(rng: random.Random, number: int) -> Load:
    """A random load at second `number`; its requests are those of the numbers before."""
    running, waiting = rng.randrange(0, 20), rng.choice([0, 0, rng.randrange(0, 200)])
    return Load(
        now=float(number),
        running=running,
        waiting=waiting,
        kv=KVView(rng.randrange(0, 5000), 5000),
        rate=rng.choice([None, rng.uniform(0.01, 100)]),
        requests=lambda: tuple(_request(number - each - 1).view for each in range(running + waiting)),
        predict=lambda request: float(request.choices * request.max_tokens),
    )


def _idle(now: float) -> Load:
    nothing: tuple[RequestView, ...] = ()
    kv = KVView(5000, 5000)
    return Load(now, 0, 0, kv, None, lambda: nothing, lambda request: float(request.max_tokens))


def _request(number: int, n: int = 1) -> Request:
    """One that arrives at second `number`; some have deadlines, of which few are near."""
    return made_request(
        f"r{number}",
        [1] * (1 + number * 7 % 90),
        arrival=float(number),
        client=f"client{number % 4}",
        priority=number % 3,
        deadline=None if number % 5 else 1.0 + number,
        params=SamplingParams(n=n, max_tokens=5 + number % 60, stop=("parallel",)),
    )
