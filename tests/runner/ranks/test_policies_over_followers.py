"""Policies with clocks and dice of their own, over real followers: tokens stay those of one process."""

from __future__ import annotations

import pytest
from ranked_engines import answers, engine, prompts

from turnout import SamplingParams

HOSTILE = """
import random, time
from turnout import EvictionPolicy, SchedulingPolicy, hookimpl


class Dice(SchedulingPolicy):
    def order(self, view):
        rng = random.Random(time.perf_counter_ns())
        requests = [*view.running, *view.waiting]
        if time.perf_counter_ns() % 2:
            requests.sort(key=id)
        else:
            rng.shuffle(requests)
        return requests[: rng.randrange(1, len(requests) + 1)]

    def victim(self, request, running):
        return random.Random(time.perf_counter_ns()).choice(running)


class DiceEviction(EvictionPolicy):
    def __init__(self):
        self.blocks = []

    def add(self, block):
        self.blocks.append(block.block)

    def remove(self, block):
        self.blocks.remove(block)

    def pop(self):
        return self.blocks.pop(time.perf_counter_ns() % len(self.blocks))


@hookimpl
def register_schedulers(register):
    register("dice", Dice)


@hookimpl
def register_evictions(register):
    register("dice", DiceEviction)
"""


def tokens(outputs):
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.slow
@pytest.mark.parametrize(
    "divided",
    [{"ranks": 2}, {"pipeline_parallel_size": 2}, {"ranks": 2, "pipeline_parallel_size": 2}],
    ids=str,
)
def test_tokens_stay_whatever_policies_decide(divided, model, tmp_path):
    (tmp_path / "turnout_plugins.py").write_text(HOSTILE)
    together = engine(
        model, plugins_folder=str(tmp_path), scheduler="dice", kv_eviction="dice", tokens=900, **divided
    )
    alone = engine(model)
    assert answers(together) == answers(alone)
    # Dice may have let memory suffice, or forgotten every prefix. They can do neither where requests grow to
    # twice the memory, and where a prompt comes again with nothing between.
    params = SamplingParams(temperature=0, max_tokens=120, ignore_eos=True)
    for texts in (prompts(), prompts()[1:2], prompts()[1:2]):
        assert tokens(together.generate(texts, params)) == tokens(alone.generate(texts, params))
    assert together.engine.stats().preemptions > 0
    assert together.engine.scheduler.kv.snapshot().hits > 0
