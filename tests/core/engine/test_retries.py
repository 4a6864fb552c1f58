"""`Retry`: a strategy asks for a request again in the next step, and gets the same logits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from turnout.core import limits
from turnout.core.types.decision import Completion, Continuation, Retry
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.brute_force import assert_expected_tokens
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.toy.decodings import ToyBeam, ToyDecoding, ToyGreedy, ToyLookup, ToyParallel
from turnout.testing.toy.engine import drive, toy_engine, toy_request
from turnout.testing.toy.runner import toy_kv
from turnout.testing.toy.workloads import RandomCase

STRATEGIES = (ToyGreedy, ToyLookup, ToyParallel, ToyBeam)


def hesitant(base: type[ToyDecoding], times: int) -> ToyDecoding:
    """A strategy that puts off each of its decisions, and notes whether the logits stay the same."""

    class Hesitant(base):  # type: ignore[misc, valid-type]
        later = False

        def __init__(self) -> None:
            self.seen: dict[tuple[str, int], list[Any]] = {}
            self.asked: Counter[str] = Counter()

        def decide(
            self, requests: Sequence[Request], logits: Logits
        ) -> Iterable[Continuation | Completion | Retry]:
            for request in requests:
                key = (request.id, request.output_tokens)
                # A draft is not verified twice: its rows follow those of the last token.
                rows = [logits.values[logits.rows[sequence][0]] for sequence in request.live]
                assert self.seen.setdefault(key, rows) == rows, "other logits"
                self.asked[request.id] += 1
                # Requests of one strategy are not all put off together.
                if (self.asked[request.id] + len(request.prompt)) % (times + 1):
                    yield Retry(request)
                else:
                    yield from super().decide([request], logits)

    return Hesitant()


@pytest.mark.parametrize("times", [1, 3])
def test_requests_get_the_tokens_that_they_would_have_got_at_once(times: int) -> None:
    """Also where memory is scarce, so that they are preempted between two questions."""
    preemptions = again = 0
    for seed in range(60):
        case = RandomCase.draw(seed)
        strategies = [hesitant(base, times) for base in STRATEGIES]
        engine = toy_engine(
            Fcfs(),
            case.kv,
            budget=case.budget,
            slots=case.slots,
            preemption=case.preemption,
            decodings=strategies,
        )
        outcome = drive(engine, case.arrivals)
        for _, spec in case.arrivals:
            assert_expected_tokens(spec, outcome, case=f"seed {seed}")
        assert_all_memory_is_free(case.kv)
        preemptions += engine.stats().preemptions
        asked = sum(sum(strategy.asked.values()) for strategy in strategies)  # type: ignore[attr-defined]
        decided = sum(len(strategy.seen) for strategy in strategies)  # type: ignore[attr-defined]
        again += asked - decided
    assert preemptions > 20 and again > 1000


class Undecided(ToyGreedy):
    """Never decides about one request."""

    def decide(
        self, requests: Sequence[Request], logits: Logits
    ) -> Iterable[Continuation | Completion | Retry]:
        for request in requests:
            if request.id == "mine" and request.output_tokens == 2:
                yield Retry(request)
            else:
                yield from super().decide([request], logits)


def test_only_a_request_without_a_decision_ends() -> None:
    engine = toy_engine(Fcfs(), toy_kv(32, 4), decodings=[Undecided()])
    specs = [toy_request(name, [1, 2, 3], "greedy", 6) for name in ("mine", "other")]
    outcome = drive(engine, [(0, spec) for spec in specs], errors=True)
    assert_expected_tokens(specs[1], outcome)
    assert outcome.errors.keys() == {"mine"}
    times = limits.RETRIES.whole
    assert f"{times} times in a row, without a decision" in outcome.errors["mine"]
    assert "Undecided of" in outcome.errors["mine"] and "decide failed" in outcome.errors["mine"]
    assert times < outcome.steps < times + 8
    assert_all_memory_is_free(engine.scheduler.kv)


@pytest.mark.parametrize(
    "wrong", [lambda request: [Retry(request), Continuation(request.live[0], [1])], lambda request: [(1, 2)]]
)
def test_what_cannot_be_meant_is_a_fault(wrong: Any) -> None:
    class Wrong(ToyGreedy):
        def decide(self, requests: Sequence[Request], logits: Logits) -> Any:
            return [each for request in requests for each in wrong(request)]

    engine = toy_engine(Fcfs(), toy_kv(32, 4), decodings=[Wrong()])
    outcome = drive(engine, [(0, toy_request("r", [1, 2, 3], "greedy", 6))], errors=True)
    assert "decide failed" in outcome.errors["r"]
