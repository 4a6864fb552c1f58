"""Requests that go on alike are continued together, and nothing comes out differently for it."""

from __future__ import annotations

import random

import msgspec
import pytest
from random_serving import POLICIES
from toy import ToyGreedy, toy_engine, toy_kv, toy_request

from turnout.core.engine.decoding_dispatch import DecodingDispatch
from turnout.core.engine.lockstep import Lockstep
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.toy.workloads import random_preemption, random_workload

BLOCK = 4


def trace(engine, arrivals, leaving=()):
    """All deltas, step by step, and what the engine says of itself in the end."""
    todo, steps = sorted(arrivals, key=lambda a: a[0]), []
    while todo or engine.busy:
        while todo and todo[0][0] <= len(steps):
            engine.add(todo.pop(0)[1])
        for name in [name for at, name in leaving if at == len(steps)]:
            engine.abort(name)
        steps.append(sorted(engine.step(), key=lambda delta: (delta.request_id, delta.index)))
        assert len(steps) < 2000
    return steps, msgspec.structs.replace(engine.stats(), slow_orders=0)  # those depend on the machine


def serve(seed, policy, overlaps, grows_at):
    rng = random.Random(seed)
    arrivals = list(random_workload(rng))
    leaving = [(rng.randrange(3, 20), spec.id) for _, spec in arrivals if rng.random() < 0.2]
    most = max(spec.params.n * (len(spec.prompt) + spec.params.max_tokens) for _, spec in arrivals)
    engine = toy_engine(
        policy(),
        toy_kv(most // BLOCK + 8, BLOCK),
        preemption=random_preemption(rng),
        overlaps=overlaps,
        grows_at=grows_at,
    )
    return trace(engine, arrivals, leaving)


@pytest.mark.parametrize(
    ("policy", "overlaps"),
    [
        pytest.param(
            policy,
            overlaps,
            id=f"{policy.__name__}-{overlaps}",
            marks=[pytest.mark.slow] if overlaps == bool(number % 2) else [],
        )
        for number, policy in enumerate(POLICIES)
        for overlaps in (False, True)
    ],
)
def test_every_delta_is_as_if_each_request_had_gone_the_general_way(policy, overlaps, monkeypatch):
    continued = 0
    append = Lockstep.append_placeholders

    def counted(lockstep, tokens, *more):
        nonlocal continued
        continued += len(tokens.requests)
        append(lockstep, tokens, *more)

    with monkeypatch.context() as patched:
        patched.setattr(Lockstep, "append_placeholders", counted)
        together = [serve(seed, policy, overlaps, BLOCK) for seed in range(25)]
    assert continued > 100
    monkeypatch.setattr(DecodingDispatch, "trusts", lambda *_: False)
    apart = [serve(seed, policy, overlaps, None) for seed in range(25)]
    assert together == apart


def test_a_sequence_that_grows_asks_for_memory_only_where_a_block_begins():
    kv, asked = toy_kv(16, BLOCK), []
    reserve = kv.reserve
    kv.reserve = lambda spans: asked.append(spans[0].upto) or reserve(spans)
    engine = toy_engine(Fcfs(), kv, grows_at=BLOCK)
    trace(engine, [(0, toy_request("r", [1, 2, 3, 4, 5, 6], "greedy", 20))])
    assert asked[0] == 6
    assert asked[1:] == [upto for upto in range(7, asked[-1] + 1) if upto % BLOCK == 1]
    assert kv.free == kv.capacity


def test_choices_that_share_a_block_ask_each_time():
    kv, asked = toy_kv(32, BLOCK), 0
    reserve = kv.reserve

    def counted(spans):
        nonlocal asked
        asked += len(spans)
        return reserve(spans)

    kv.reserve = counted
    engine = toy_engine(Fcfs(), kv, grows_at=BLOCK)
    steps, _ = trace(engine, [(0, toy_request("r", [1, 2, 3, 4, 5, 6], "parallel", 8, 2))])
    assert asked >= 2 * (len(steps) - 2)


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_request_that_asks_for_log_probabilities_goes_the_general_way(overlaps):
    engine = toy_engine(Fcfs(), toy_kv(16, BLOCK), overlaps=overlaps)
    params = SamplingParams(max_tokens=6, stop=("greedy",), ignore_eos=True)
    for name in ("a", "b"):
        spec = toy_request(name, [1, 2, 3], "greedy", 6)
        engine.add(spec if name == "a" else type(spec)(id="b", prompt=[3, 2, 1], params=params, seed=0))
    counts = {"a": 0, "b": 0}
    while engine.busy:
        for delta in engine.step():
            counts[delta.request_id] += len(delta.tokens)
    assert counts["b"] == 6


class MayDraft(ToyGreedy):
    """Drafts nothing, but has to be asked, with the latest token known."""

    def __init__(self):
        self.asked = 0

    def draft(self, sequences):
        self.asked += len(sequences)
        return ()


def test_tokens_of_a_strategy_that_drafts_are_known_before_the_next_step():
    strategy = MayDraft()
    engine = toy_engine(Fcfs(), toy_kv(16, BLOCK), overlaps=True, decodings=[strategy])
    steps, _ = trace(engine, [(0, toy_request("r", [1, 2, 3], "greedy", 6))])
    tokens = sum(len(delta.tokens) for step in steps for delta in step)
    assert strategy.asked == tokens - 1
