"""What the engine promises each request: admission with sums, aborts, and no faults of others."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from toy import EOS, VOCABULARY, ToyGreedy, ToyLookup, drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.errors import Overloaded, RequestError
from turnout.core.interfaces.kv import PoolSize
from turnout.core.interfaces.scheduling import Drop, SchedulingPolicy
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.schedulers.fcfs import Fcfs

PROMPT = [1, 2, 3, 4, 5]
PROMPT_THAT_ENDS = next(
    list(prompt)
    for prompt in itertools.product(range(1, VOCABULARY), repeat=4)
    if (output := expected(toy_request("r", list(prompt), "greedy", 60))[0])[-1] == EOS and len(output) > 3
)
"""Greedy decoding reaches the end of sequence from here."""


def small_engine(policy=None, *, blocks=32, **options):
    return toy_engine(policy or Fcfs(), toy_kv(blocks, 4), **options)


def spec(prompt=PROMPT, **params):
    return RequestSpec(
        id="r", prompt=prompt, params=SamplingParams(**{"stop": ("greedy",), **params}), seed=0
    )


# ------------------------------------------------------------------ admission


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (spec([]), "prompt is empty"),
        (spec([1] * 256), "maximum context length is 256 tokens, but the prompt has 256"),
        (spec([1] * 250, max_tokens=7), "257 were requested: 250 in the prompt and max_tokens=7.*at most 6"),
        (spec([1, VOCABULARY]), f"token id {VOCABULARY} is outside the vocabulary"),
        (spec([1, -1]), "token id -1 is outside"),
        (spec(logit_bias={99: 1.0}), "token id 99 is outside"),
        (spec(n=7), "needs 7 sequences at once, at most 6 can run"),
        (spec(max_tokens=124), r"may need 1 x 129 tokens.*\(prompt 5 \+ max_tokens 124\).*holds 128"),
        (spec(stop=("nobody",)), "no decoding strategy serves"),
    ],
)
def test_a_request_that_can_never_run_is_refused_with_the_sums(request_, message):
    engine = small_engine()
    with pytest.raises(RequestError, match=message):
        engine.add(request_)
    assert not engine.busy


def test_max_tokens_left_open_means_what_the_context_leaves_room_for():
    engine = toy_engine(Fcfs(), toy_kv(64, 4))
    engine.add(spec([1] * 250, max_tokens=None))
    assert engine.scheduler.queues.waiting[0].limit == 256


def test_a_full_queue_is_overload_not_the_requests_fault():
    engine = small_engine()
    for i in range(6):
        engine.add(toy_request(f"running{i}", PROMPT, "greedy", 9))
    engine.step()
    for i in range(1000):
        engine.add(toy_request(f"r{i}", PROMPT, "greedy", 2))
    with pytest.raises(Overloaded, match="1000 requests are waiting"):
        engine.add(spec())


def test_those_that_find_a_slot_in_the_next_step_do_not_wait():
    """A burst at an idle engine was refused beyond the queue, though there was room for more."""
    engine = small_engine()
    for i in range(1000 + 6):
        engine.add(toy_request(f"r{i}", PROMPT, "greedy", 9))
    with pytest.raises(Overloaded, match="1000 requests are waiting"):
        engine.add(spec())
    engine.step()
    engine.step()  # the prompts are more than a step computes
    assert (engine.stats().running, engine.stats().waiting) == (6, 1000)


def test_a_free_slot_without_memory_admits_none_beyond_the_queue():
    """Those that the policy has seen wait, whatever they wait for."""
    engine = small_engine(blocks=4)
    for i in range(1000 + 2):
        engine.add(toy_request(f"r{i}", PROMPT, "greedy", 11))
    engine.step()
    assert engine.stats().waiting == 1000 and engine.scheduler.free_slots > 0
    with pytest.raises(Overloaded, match="1000 requests are waiting"):
        engine.add(spec(max_tokens=2))


def test_the_same_id_twice_is_refused():
    engine = small_engine()
    engine.add(spec())
    with pytest.raises(RequestError, match="being served already"):
        engine.add(spec())


# ------------------------------------------------------------------ endings


def test_an_output_ends_at_eos_at_stop_tokens_or_at_the_limit():
    prompt = PROMPT_THAT_ENDS
    natural = drive(small_engine(), [(0, spec(prompt, max_tokens=60))])
    whole = natural.tokens["r"][0]
    assert natural.finished["r"][0] == "stop" and whole[-1] == EOS

    ignored = drive(small_engine(), [(0, spec(prompt, max_tokens=60, ignore_eos=True))])
    assert len(ignored.tokens["r"][0]) == 60 and ignored.finished["r"][0] == "length"

    token = whole[1]
    assert token != EOS
    stopped = drive(small_engine(), [(0, spec(prompt, max_tokens=60, stop_token_ids=(token,)))])
    assert stopped.tokens["r"][0] == whole[: whole.index(token) + 1]
    assert stopped.finished["r"][0] == "stop"


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("make_kv", [lambda: toy_kv(32, 4), lambda: ContiguousCache(PoolSize(128))])
def test_an_abort_frees_everything_at_once(steps, make_kv):
    kv = make_kv()
    engine = toy_engine(Fcfs(), kv, budget=4)
    engine.add(toy_request("gone", PROMPT, "parallel", 20, n=3))
    engine.add(toy_request("stays", PROMPT, "greedy", 8))
    for _ in range(steps):
        engine.step()
    engine.abort("gone")
    engine.abort("never was")
    assert "gone" not in drive(engine, []).tokens
    assert kv.free == kv.capacity


def test_one_choice_can_be_aborted_while_its_siblings_go_on():
    engine = small_engine()
    request = toy_request("r", PROMPT, "parallel", 9, n=3)
    engine.add(request)
    engine.step()
    engine.abort("r", index=1)
    outcome = drive(engine, [])
    assert set(outcome.finished["r"]) == {0, 2}
    assert engine.stats().kv_free == engine.stats().kv_capacity


# ------------------------------------------------------------------ sharing


def test_a_common_prefix_is_computed_once_even_while_its_first_owner_runs():
    engine = small_engine(blocks=64, budget=64)
    prefix = [1, 2, 3, 4] * 8
    arrivals = [(i, toy_request(f"r{i}", [*prefix, 1 + i], "greedy", 4)) for i in range(5)]
    outcome = drive(engine, arrivals)
    assert [outcome.outputs(s.id) for _, s in arrivals] == [expected(s) for _, s in arrivals]
    outputs = sum(len(outcome.tokens[s.id][0]) for _, s in arrivals)
    assert engine.stats().computed_tokens == len(prefix) + 5 + outputs - 5


# ------------------------------------------------------------------ faults


def test_a_policy_that_asks_what_is_cached_of_running_requests_changes_nothing():
    """Blocks of prompts in parts were taken for registered ones, and later requests found little."""

    class Asking(Fcfs):
        def order(self, view):
            self.found = [view.cached(request) for request in view.running]
            return super().order(view)

    prompt, found = [1, 2, 3, 4, 5, 6] * 5, []
    for policy in (Fcfs(), Asking()):
        kv = toy_kv(64, 4)
        engine = toy_engine(policy, kv, budget=6)
        for name in "ab":
            engine.add(toy_request(name, prompt, "greedy", 3))
            while engine.busy:
                engine.step()
        found.append(kv.snapshot().hits)
    assert found == [28, 28]
    assert policy.found == [31], "of a running request, what is computed"


def test_a_strategys_fault_ends_its_own_requests_and_no_others(monkeypatch):
    def broken(self, requests, logits):
        raise ZeroDivisionError("no chance")

    engine = small_engine()
    monkeypatch.setattr(ToyGreedy, "decide", broken)
    engine.add(toy_request("ends", PROMPT, "greedy", 5))
    engine.add(toy_request("lives", PROMPT, "lookup", 5))
    deltas = []
    while engine.busy:
        deltas += engine.step()
    (failed,) = [d for d in deltas if d.request_id == "ends"]
    assert failed.finish_reason == "error"
    assert (
        "ToyGreedy of turnout.testing.toy.decodings: decide failed: ZeroDivisionError: no chance"
        in failed.error
    )
    assert sum(len(d.tokens) for d in deltas if d.request_id == "lives") >= 1
    assert engine.stats().kv_free == engine.stats().kv_capacity


# ------------------------------------------------------------------ parameters


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.1},
        {"n": 0},
        {"max_tokens": 0},
        {"min_tokens": 9, "max_tokens": 8},
        {"stop": ("",)},
        {"logprobs": 21},
        {"presence_penalty": 2.1},
        {"repetition_penalty": 0},
    ],
)
def test_sampling_parameters_out_of_range_are_refused_by_name(bad):
    with pytest.raises(RequestError) as caught:
        SamplingParams(**bad)
    assert caught.value.param == next(iter(bad))
    assert caught.value.param in str(caught.value)


def test_a_strategy_that_fails_to_draft_costs_only_its_drafts(monkeypatch, caplog):
    def broken(self, sequences):
        raise ZeroDivisionError("no clue")

    monkeypatch.setattr(ToyLookup, "draft", broken)
    request = toy_request("r", PROMPT, "lookup", 8)
    assert drive(small_engine(), [(0, request)]).outputs("r") == expected(request)
    assert [record.message for record in caplog.records] == [
        "decoding strategy ToyLookup of turnout.testing.toy.decodings: draft failed: "
        "ZeroDivisionError: no clue; no tokens are drafted for this step (said once)"
    ]


def test_a_strategy_that_fails_to_say_whom_it_serves_costs_that_request(monkeypatch):
    def broken(self, params):
        raise ZeroDivisionError("no idea")

    monkeypatch.setattr(ToyGreedy, "accepts", broken)
    engine = small_engine()
    with pytest.raises(RequestError, match=r"ToyGreedy of .*: accepts failed: ZeroDivisionError: no idea"):
        engine.add(spec())
    assert not engine.busy


def test_a_policy_cannot_change_what_it_sees():
    seen = []

    class Curious(Fcfs):
        def order(self, view):
            seen.append(view)
            return super().order(view)

    engine = small_engine(Curious())
    engine.add(spec())
    engine.step()
    view = seen[0]
    for name in ("priority", "live", "_request"):
        with pytest.raises(AttributeError, match="read-only"):
            setattr(view.waiting[0], name, 1)
    with pytest.raises(AttributeError):
        view.now = 0
    assert not hasattr(view.kv, "release")


# ------------------------------------------------------------------ places, drops, times


class Urgent(SchedulingPolicy):
    """Priority order; a running request gives its place up to a more urgent one."""

    def order(self, view):
        return sorted((*view.running, *view.waiting), key=lambda r: (r.priority, r.arrival))

    def victim(self, request, running):
        last = max((*running, request), key=lambda r: (r.priority, r.arrival))
        return last if last is not request or request in running else None


def test_an_urgent_request_takes_a_slot_when_all_are_taken():
    engine = small_engine(Urgent(), slots=2, blocks=64)
    late = [(0, toy_request(f"calm{i}", [1 + i, 2], "greedy", 30, priority=5)) for i in range(2)]
    outcome = drive(engine, [*late, (4, toy_request("urgent", [5, 5], "greedy", 3, priority=0))])
    assert engine.stats().preemptions == 1
    assert next(iter(outcome.finished)) == "urgent"
    for _, request in late:
        assert outcome.outputs(request.id) == expected(request)


class Impatient(Fcfs):
    def order(self, view):
        for request in super().order(view):
            yield Drop(request, "took too long") if view.now - request.arrival > 10 else request


@pytest.mark.parametrize("wait_in_queue", [True, False])
def test_a_dropped_request_ends_with_the_policys_reason_and_frees_its_memory(wait_in_queue):
    engine = small_engine(Impatient(), slots=1, strict=True)
    if wait_in_queue:
        engine.add(toy_request("quick", PROMPT, "greedy", 3))
    engine.add(toy_request("slow", PROMPT, "greedy", 100))
    deltas = []
    while engine.busy:
        deltas += engine.step()
    last = deltas[-1]
    assert (last.request_id, last.finish_reason, last.error_kind) == ("slow", "error", "timeout")
    assert last.error == "took too long"
    assert engine.stats().kv_free == engine.stats().kv_capacity


class DropsOneAtATime(SchedulingPolicy):
    """And computes nothing until a single one is left."""

    def order(self, view):
        requests = [*view.running, *view.waiting]
        return requests if len(requests) == 1 else [Drop(requests[0], "too many")]


def test_a_step_that_drops_a_sequence_is_not_idle():
    engine = small_engine(DropsOneAtATime(), strict=True)
    requests = [toy_request(f"r{i}", PROMPT, "greedy", 3) for i in range(3)]
    outcome = drive(engine, [(0, request) for request in requests], errors=True)
    assert outcome.errors == {"r0": "too many", "r1": "too many"}
    assert outcome.outputs("r2") == expected(requests[2])


def test_who_is_ordered_without_a_cap_computes_all_of_a_long_prompt_in_one_step():
    engine = small_engine(blocks=64, budget=240)
    engine.add(toy_request("r", [1 + i % 6 for i in range(230)], "greedy", 3))
    assert [len(delta.tokens) for delta in engine.step()] == [1]


def test_aborting_what_is_not_there_changes_nothing():
    engine = small_engine()
    engine.add(toy_request("r", PROMPT, "greedy", 3))
    assert engine.abort("s") is None
    assert engine.abort("r", index=5) is not None
    assert engine.stats().waiting == 1


def test_timing_tells_when_things_happened_on_the_engines_clock():
    engine = small_engine(blocks=8, slots=4)
    specs = [toy_request(f"r{i}", [1 + i, 2, 3, 4, 5], "greedy", 14) for i in range(3)]
    for each in specs:
        engine.add(msgspec.structs.replace(each, timing=True))
    timings = {d.request_id: d.timing for d in iter_deltas(engine) if d.timing}
    assert set(timings) == {"r0", "r1", "r2"}
    for timing in timings.values():
        assert timing.arrival < timing.scheduled < timing.first_token <= timing.finished
    assert any(timing.preempted for timing in timings.values())


def iter_deltas(engine):
    while engine.busy:
        yield from engine.step()
