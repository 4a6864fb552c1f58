"""Steps that overlap: the next one is handed to the device before the tokens of the one before are known."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest
import torch
from random_serving import POLICIES, served
from test_engine import PROMPT_THAT_ENDS
from toy import (
    EOS,
    ToyGreedy,
    ToyParallel,
    ToyRunner,
    argmax,
    drive,
    expected,
    toy_engine,
    toy_kv,
    toy_request,
)

from turnout.core.interfaces.scheduling import Drop, SchedulingPolicy
from turnout.core.types.decision import Chosen, Continuation
from turnout.core.types.request import Resumption
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.toy.runner import as_lists, as_tensor
from turnout.testing.toy.workloads import random_cache, random_preemption, random_workload

PROMPT = [1, 2, 3, 4, 5]


class Device(ToyRunner):
    """Counts plans, and those with tokens that were not yet known."""

    def __init__(self, kv, **options) -> None:
        super().__init__(kv, **options)
        self.plans = Counter()

    def run(self, plan):
        blind = any(token < 0 for chunk in plan.chunks for token in chunk.tokens)
        self.plans["blind" if blind else "seeing"] += 1
        return super().run(plan)


def overlapping(policy=None, kv=None, **options):
    kv = kv or toy_kv(64, 4)
    return toy_engine(policy or Fcfs(), kv, runner=Device(kv), overlaps=True, **options)


def simple(rng):
    """Requests to the strategies that need not know what they chose; tokens end some of them early."""
    for step, spec in random_workload(rng):
        strategy = "parallel" if spec.params.n > 1 else "greedy"
        yield step, toy_request(spec.id, spec.prompt, strategy, spec.params.max_tokens, spec.params.n)


# ------------------------------------------------------------------ the same answers


@pytest.mark.parametrize(
    ("policy", "workload"),
    [
        pytest.param(
            policy,
            workload,
            id=f"{policy.__name__}-{name}",
            marks=[pytest.mark.slow] if workload is simple and number > 1 else [],
        )
        for number, policy in enumerate(POLICIES)
        for name, workload in (("simple", simple), ("all strategies", random_workload))
    ],
)
def test_outputs_equal_brute_force_and_memory_returns_to_zero(policy, workload):
    preemptions, plans = 0, Counter()
    for engine in served(policy, 100, workload=workload, make=overlapping):
        preemptions += engine.stats().preemptions
        plans += engine.runner.plans
    assert preemptions > 0, "the workloads must exercise preemption"
    assert plans["blind"] > plans["seeing"] / (1 if workload is simple else 20)


@pytest.mark.parametrize("seed", range(150))
def test_clients_that_leave_get_the_beginning_and_harm_no_others(seed):
    rng = random.Random(seed)
    arrivals = list(simple(rng))
    kv = random_cache(rng, arrivals)
    engine = overlapping(kv=kv, budget=rng.randrange(5, 24), preemption=random_preemption(rng))
    todo, told, leaving = sorted(arrivals, key=lambda a: a[0]), Counter(), set()
    outputs: dict[str, dict[int, list[int]]] = {spec.id: {} for _, spec in arrivals}
    for step in range(500):
        while todo and todo[0][0] <= step:
            engine.add(todo.pop(0)[1])
        if rng.random() < 0.2:
            spec = rng.choice(arrivals)[1]
            request = engine._requests._requests.get(spec.id)
            index = rng.choice([None, rng.randrange(spec.params.n)])
            if request is not None:
                born = {sequence.index for sequence in request.live}
                leaving |= {(spec.id, choice) for choice in (born if index is None else born & {index})}
            engine.abort(spec.id, index)
        for delta in engine.step():
            assert (delta.request_id, delta.index) not in leaving, "told after it left"
            outputs[delta.request_id].setdefault(delta.index, []).extend(delta.tokens)
            told[delta.request_id] += delta.finish_reason is not None
        if not todo and not engine.busy:
            break
    assert not todo and not engine.busy
    assert_all_memory_is_free(kv)
    for _, spec in arrivals:
        right = expected(spec)
        for index, tokens in outputs[spec.id].items():
            assert any(tokens == whole[: len(tokens)] for whole in right)
            assert (spec.id, index) in leaving or tokens in right


# ------------------------------------------------------------------ what overlaps


def test_a_step_is_read_when_the_next_one_has_begun():
    """Nothing that the host does with a step's tokens keeps the device from the next one."""
    happened = []

    class Told(ToyGreedy):
        def decide(self, requests, logits):
            chosen = super().decide(requests, logits)

            def read():
                happened.append("read")
                return chosen.read()

            return Chosen(chosen.parents, chosen.tokens, read)

    class Noted(Device):
        def run(self, plan):
            happened.append("run")
            return super().run(plan)

    kv = toy_kv(64, 4)
    engine = toy_engine(Fcfs(), kv, runner=Noted(kv), decodings=[Told()], overlaps=True)
    outcome = drive(engine, [(0, toy_request("r", PROMPT, "greedy", 4))])
    assert len(outcome.tokens["r"][0]) == 4
    assert happened == ["run", *["run", "read"] * 3, "read"]


def test_a_request_that_needs_its_tokens_known_has_all_wait_for_them():
    engine = overlapping()
    arrivals = [
        (0, toy_request("beam", PROMPT, "beam", 6, n=2)),
        (0, toy_request("r", PROMPT, "greedy", 6)),
    ]
    drive(engine, arrivals)
    assert engine.runner.plans["blind"] == 0


def test_who_has_no_room_left_is_planned_for_no_more():
    """Its last token is chosen, not known: no policy sees it, and nothing is computed for it."""
    seen = []

    class Watching(Fcfs):
        def order(self, view):
            seen.append([request.output_tokens for request in view.running])
            return super().order(view)

    engine = overlapping(Watching())
    engine.add(toy_request("r", PROMPT, "greedy", 3))
    steps = 0
    while engine.busy:
        engine.step()
        steps += 1
    assert seen == [[], [1], [2]]
    assert steps == 4  # the last one only reads
    assert engine.stats().computed_tokens == len(PROMPT) + 2


def test_who_stops_by_a_token_is_computed_for_one_step_too_many_and_gives_its_memory_back():
    spec = toy_request("r", PROMPT_THAT_ENDS, "greedy", 60)
    (whole,) = expected(spec)
    engine = overlapping()
    outcome = drive(engine, [(0, spec)])
    assert outcome.outputs("r") == [whole] and whole[-1] == EOS
    assert engine.stats().computed_tokens == len(spec.prompt) + len(whole)
    assert engine.stats().output_tokens == len(whole)
    assert engine.stats().kv_free == engine.stats().kv_capacity


def test_no_request_gives_way_for_want_of_what_a_finishing_request_holds():
    class Urgent(SchedulingPolicy):
        """The latest request evicts the others."""

        def order(self, view):
            return [*reversed(view.waiting), *view.running]

        def victim(self, request, running):
            return running[0]

    engine = overlapping(Urgent(), slots=2)
    engine.add(toy_request("short", PROMPT, "greedy", 2))
    engine.add(toy_request("long", PROMPT, "greedy", 9))
    engine.step()
    engine.step()  # the last token of the short one is chosen
    engine.add(toy_request("late", PROMPT, "greedy", 3))
    engine.step()
    assert engine.stats().preemptions == 0
    outcome = drive(engine, [])
    assert engine.stats().preemptions == 0
    assert outcome.outputs("late") == expected(toy_request("late", PROMPT, "greedy", 3))


def test_choices_that_do_not_end_together_are_known_before_one_of_them_ends():
    """As after the loss of an engine: both step together, and one has a token of room, the other two."""
    spec = toy_request("r", PROMPT, "parallel", 4, n=2)
    first, second = expected(spec)
    if first[0] != 1:
        first, second = second, first
    resumed = msgspec.structs.replace(spec, resume=Resumption(choices=[(0, first[:3]), (1, second[:1])]))
    outcome = drive(overlapping(), [(0, resumed)])
    assert [first[:3] + outcome.tokens["r"][0], second[:1] + outcome.tokens["r"][1]] == [first, second]


# ------------------------------------------------------------------ times, faults


def test_policies_see_a_first_token_when_it_is_chosen_and_clients_are_told_when_it_was_known():
    seen = []

    class Watching(Fcfs):
        def order(self, view):
            seen.extend(request.first_token for request in view.running)
            return super().order(view)

    engine = overlapping(Watching())
    spec = toy_request("r", PROMPT, "greedy", 3)
    engine.add(msgspec.structs.replace(spec, timing=True))
    deltas = []
    while engine.busy:
        deltas += engine.step()
    assert None not in seen
    assert seen[0] < seen[1] == deltas[-1].timing.first_token


def test_a_policy_may_drop_who_has_an_unknown_token():
    class Dropping(Fcfs):
        def order(self, view):
            for request in [*view.running, *view.waiting]:
                yield Drop(request, "on a whim") if request.output_tokens == 2 else request

    engine = overlapping(Dropping())
    outcome = drive(engine, [(0, toy_request("r", PROMPT, "greedy", 9))], errors=True)
    assert outcome.errors == {"r": "on a whim"}
    assert len(outcome.tokens["r"][0]) == 1
    assert engine.stats().kv_free == engine.stats().kv_capacity


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda chosen: Chosen(chosen.parents, chosen.tokens, lambda: 1 / 0), "ZeroDivisionError"),
        (lambda chosen: Chosen(chosen.parents, chosen.tokens, lambda: []), "gave 0 tokens"),
        (
            lambda chosen: Chosen(chosen.parents, chosen.tokens, chosen.read, lambda: [None, None]),
            "gave 1 tokens and 2 details",
        ),
        (
            lambda chosen: Chosen(chosen.parents, chosen.tokens, lambda: [99] * len(chosen.parents)),
            "gave token 99",
        ),
        (
            lambda chosen: Chosen([p.fork() for p in chosen.parents], chosen.tokens, chosen.read),
            "is no longer live",
        ),
        (lambda chosen: Chosen([], [], list), "gave no continuation for"),
        (lambda chosen: Chosen(chosen.parents, [1, 2, 3], chosen.read), "chose 3 tokens for 1 sequences"),
    ],
    ids=["fails", "too few", "too many details", "outside the vocabulary", "gone", "nothing", "too many"],
)
def test_a_strategys_fault_ends_its_own_requests_and_no_others(broken, message):
    class Broken(ToyGreedy):
        def decide(self, requests, logits):
            return broken(super().decide(requests, logits))

    engine = overlapping(decodings=[Broken()])
    arrivals = [
        (0, toy_request("ends", PROMPT, "greedy", 5)),
        (0, toy_request("lives", PROMPT, "parallel", 5, n=2)),
    ]
    outcome = drive(engine, arrivals, errors=True)
    assert set(outcome.errors) == {"ends"} and message in outcome.errors["ends"]
    assert outcome.outputs("lives") == expected(arrivals[1][1])
    assert engine.stats().kv_free == engine.stats().kv_capacity


@pytest.mark.parametrize("device", [as_lists, as_tensor])
@pytest.mark.parametrize("what", ["outside", "emptied", "parents", "kept"])
def test_what_a_strategy_does_to_its_tokens_later_ends_no_other_request(what, device):
    """The next step is computed from a copy, within the vocabulary."""

    kept = []

    class Meddling(ToyGreedy):
        def decide(self, requests, logits):
            for each in kept:  # of steps before
                each.read()
            chosen = super().decide(requests, logits)
            if what == "outside":
                tokens = [10**9] * len(chosen.parents)
                on_device = tokens if device is as_lists else torch.tensor(tokens)
                chosen = Chosen(chosen.parents, on_device, lambda: tokens)
            kept.append(chosen)
            return chosen

    class Meddled(Device):
        def run(self, plan):
            for each in kept:
                if what == "emptied":
                    each.tokens.clear() if device is as_lists else each.tokens.resize_(0)
                elif what == "parents":
                    each.parents.clear()
            return super().run(plan)

    kv = toy_kv(64, 4)
    engine = toy_engine(Fcfs(), kv, runner=Meddled(kv, values=device), decodings=[Meddling()], overlaps=True)
    arrivals = [
        (0, toy_request("own", PROMPT, "greedy", 5)),
        (0, toy_request("lives", PROMPT, "parallel", 5, n=2)),
    ]
    outcome = drive(engine, arrivals, errors=True)
    assert outcome.outputs("lives") == expected(arrivals[1][1])
    assert engine.runner.plans["blind"]
    fails = what == "outside" or (what == "emptied" and device is as_lists)  # `read` gives the list
    assert set(outcome.errors) == ({"own"} if fails else set())
    assert engine.stats().kv_free == engine.stats().kv_capacity


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1], "as list; they should be a tensor"),
        (torch.tensor([1.0]), "torch.float32 [1] on cpu; they should be int64 [n]"),
        (torch.tensor([[1]]), "torch.int64 [1, 1] on cpu"),
        (torch.tensor([1], device="meta"), "on meta; they should be int64 [n] on cpu"),
    ],
    ids=["list", "floats", "2 dimensions", "another device"],
)
def test_tokens_that_a_device_cannot_compute_with_end_their_own_requests_alone(tokens, message):
    class Broken(ToyGreedy):
        def decide(self, requests, logits):
            chosen = super().decide(requests, logits)
            return Chosen(chosen.parents, tokens, chosen.read)

    kv = toy_kv(64, 4)
    engine = toy_engine(Fcfs(), kv, runner=Device(kv, values=as_tensor), decodings=[Broken()], overlaps=True)
    arrivals = [
        (0, toy_request("ends", PROMPT, "greedy", 5)),
        (0, toy_request("lives", PROMPT, "parallel", 5, n=2)),
    ]
    outcome = drive(engine, arrivals, errors=True)
    assert set(outcome.errors) == {"ends"} and message in outcome.errors["ends"]
    assert outcome.outputs("lives") == expected(arrivals[1][1])


def test_a_logits_processors_fault_ends_who_wants_it_and_the_others_go_on():
    class Marking(ToyParallel):
        """As a processor marks a request, while its strategy decides."""

        def decide(self, requests, logits):
            for request in requests:
                if request.id == "ends" and request.output_tokens:
                    request.fault = "broken"
            return super().decide(requests, logits)

    engine = overlapping(decodings=[Marking()])
    arrivals = [(0, toy_request(name, PROMPT, "parallel", 5, n=2)) for name in ("ends", "lives")]
    outcome = drive(engine, arrivals, errors=True)
    assert outcome.errors == {"ends": "broken"}
    assert outcome.outputs("lives") == expected(arrivals[1][1])


def test_drafts_are_verified_at_once_even_by_who_says_that_it_need_not_know(monkeypatch):
    def draft(self, sequences):
        asked.extend(sequence.tokens[-1] for sequence in sequences)
        return [(sequence, [1, 2]) for sequence in sequences]

    monkeypatch.setattr(ToyGreedy, "draft", draft)
    monkeypatch.setattr(ToyGreedy, "rows", 3)
    monkeypatch.setattr(ToyGreedy, "choose", lambda self, request, rows: _first_row(rows))
    engine, asked = overlapping(), []
    spec = toy_request("r", PROMPT, "greedy", 9)
    beams = toy_request("beams", PROMPT, "beam", 4, n=2)  # while it lives, all tokens are known
    assert drive(engine, [(0, spec), (0, beams)]).outputs("r") == expected(spec)
    assert asked and min(asked) >= 0 and not engine.runner.plans["blind"]


def _first_row(rows):
    return [Continuation(sequence, [argmax(logits[0])]) for sequence, logits in rows.items()]
