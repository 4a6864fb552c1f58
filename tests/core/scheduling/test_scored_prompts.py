"""A prompt whose log-probabilities are asked for takes a smaller part of the steps that others wait for."""

from __future__ import annotations

import msgspec
import pytest
from toy import ToyRunner, drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.engine.engine import Engine
from turnout.core.scheduling.token_budget import SCORED_COST
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import RequestSpec
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.plugins.schedulers.priority import Priority

BUDGET = 16
PROMPT = [1, 2, 3, 4, 5] * 8


class Noting(ToyRunner):
    """A runner that notes how many tokens of each request a step computes."""

    steps: list[dict[str, int]]

    def run(self, plan: Plan) -> Logits:
        self.steps.append({chunk.sequence.request.id: len(chunk.tokens) for chunk in plan.chunks})
        return super().run(plan)


def scored(name: str, n: int = 1) -> RequestSpec:
    spec = toy_request(name, PROMPT, "parallel" if n > 1 else "greedy", 4, n=n)
    return msgspec.structs.replace(spec, params=msgspec.structs.replace(spec.params, prompt_logprobs=2))


def noting(blocks: int = 64, **options: int) -> tuple[Engine, list[dict[str, int]]]:
    kv = toy_kv(blocks, 4)
    runner = Noting(kv)
    runner.steps = []
    return toy_engine(Fcfs(), kv, budget=BUDGET, runner=runner, **options), runner.steps


def decoding(name: str = "decodes") -> RequestSpec:
    return toy_request(name, [6], "greedy", 30)


def test_beside_a_request_that_decodes_each_of_its_tokens_takes_several_of_the_budget() -> None:
    engine, steps = noting()
    outcome = drive(engine, [(0, decoding()), (1, scored("scored"))])
    beside = [step for step in steps if "decodes" in step and step.get("scored", 0) > 1]
    assert len(beside) > 3
    assert max(step["scored"] for step in beside) == (BUDGET - 1) // SCORED_COST
    assert all(step["decodes"] == 1 for step in beside)
    assert outcome.outputs("scored") == expected(scored("scored"))
    assert outcome.outputs("decodes") == expected(decoding())


def test_where_none_but_such_prompts_run_they_take_whole_steps() -> None:
    """Scoring texts, as an evaluation does, is as quick as computing prompts is."""
    engine, steps = noting()
    drive(engine, [(0, scored("a")), (0, scored("b"))])
    assert steps[0] == {"a": BUDGET}
    assert sum(len(PROMPT) for _ in "ab") / BUDGET == pytest.approx(len(steps), abs=10)
    assert max(sum(step.values()) for step in steps) == BUDGET


def test_what_is_left_of_the_budget_goes_to_others() -> None:
    """The cost is counted once: two such prompts and one that is not scored share what a step has."""
    engine, steps = noting()
    plain = toy_request("plain", PROMPT, "greedy", 4)
    outcome = drive(engine, [(0, decoding()), (1, scored("scored")), (1, plain)])
    for step in steps:
        cost = sum(tokens * (SCORED_COST if id == "scored" else 1) for id, tokens in step.items())
        assert cost <= BUDGET + SCORED_COST
    assert outcome.outputs("plain") == expected(plain)


def test_a_budget_of_one_token_is_enough() -> None:
    kv = toy_kv(64, 4)
    engine = toy_engine(Fcfs(), kv, budget=2)
    outcome = drive(engine, [(0, decoding()), (1, scored("scored"))])
    assert outcome.outputs("scored") == expected(scored("scored"))


def test_a_request_of_as_many_choices_as_the_budget_has_tokens_goes_on() -> None:
    kv = toy_kv(128, 4)
    engine = toy_engine(Fcfs(), kv, budget=5, slots=8)
    outcome = drive(engine, [(0, decoding()), (1, scored("scored", n=4))])
    assert outcome.outputs("scored") == expected(scored("scored", n=4))


def test_one_that_is_preempted_in_its_step_gives_back_what_it_took() -> None:
    kv = toy_kv(14, 4)
    engine = toy_engine(Priority(), kv, budget=BUDGET)
    urgent = [toy_request(f"u{number}", [number] * 9, "greedy", 12, priority=-1) for number in range(1, 4)]
    arrivals = [(0, decoding()), (1, scored("scored")), *((3 + step, one) for step, one in enumerate(urgent))]
    outcome = drive(engine, arrivals)
    assert engine.stats().preemptions
    for one in (decoding(), scored("scored"), *urgent):
        assert outcome.outputs(one.id) == expected(one)
