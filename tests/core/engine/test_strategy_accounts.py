"""Strategies are told which sequences are gone, their counters are reported; drafts displace no request."""

from __future__ import annotations

import logging
from types import ModuleType

import pytest
from toy import ToyGreedy, ToyLookup, drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.errors import ConfigError, UnknownPlugin
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.proposer import Proposer
from turnout.core.interfaces.scheduling import Drop
from turnout.core.registry.hookspecs import hookimpl
from turnout.core.registry.registry import Registry
from turnout.plugins.proposers.ngram import NGram
from turnout.plugins.schedulers.fcfs import Fcfs

PROMPT = [1, 2, 3, 4, 5]


@pytest.fixture
def forgotten(monkeypatch):
    """Ids of requests and indices of choices, in the order in which they were forgotten."""
    gone: list[tuple[str, int]] = []

    def forget(self, sequences):
        gone.extend((sequence.request.id, sequence.index) for sequence in sequences)

    monkeypatch.setattr(Decoding, "forget", forget)
    return gone


def test_sequences_that_end_are_forgotten(forgotten):
    drive(toy_engine(Fcfs(), toy_kv(64, 4)), [(0, toy_request("r", PROMPT, "parallel", 6, n=3))])
    assert sorted(forgotten) == [("r", 0), ("r", 1), ("r", 2)]


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_sequences_that_are_aborted_are_forgotten(steps, forgotten):
    engine = toy_engine(Fcfs(), toy_kv(64, 4))
    engine.add(toy_request("r", PROMPT, "greedy", 60))
    for _ in range(steps):
        engine.step()
    engine.abort("r")
    assert forgotten == [("r", 0)]


def test_sequences_that_are_dropped_for_others_are_forgotten(forgotten):
    """Of a beam search as of all, each once."""
    drive(toy_engine(Fcfs(), toy_kv(64, 4)), [(0, toy_request("r", PROMPT, "beam", 8, n=3))])
    assert len(forgotten) == len(set(forgotten)) > 3


def test_requests_that_the_policy_gives_up_are_forgotten(forgotten):
    class Strict(Fcfs):
        def order(self, view):
            return [Drop(request, "no") for request in view.waiting]

    engine = toy_engine(Strict(), toy_kv(64, 4))
    engine.add(toy_request("r", PROMPT, "greedy", 6))
    engine.step()
    assert forgotten == [("r", 0)]


def test_preemption_is_no_end(forgotten):
    engine = toy_engine(Fcfs(), toy_kv(10, 4))
    arrivals = [(0, toy_request(f"r{i}", [1 + i, 2, 3], "greedy", 12)) for i in range(4)]
    outcome = drive(engine, arrivals)
    assert engine.stats().preemptions > 0
    assert sorted(forgotten) == sorted((name, 0) for name in outcome.finished)


def test_a_fault_in_forgetting_is_named_and_harms_no_request(monkeypatch, caplog):
    def broken(self, sequences):
        raise ZeroDivisionError("what was that")

    monkeypatch.setattr(ToyGreedy, "forget", broken)
    request = toy_request("r", PROMPT, "greedy", 6)
    with caplog.at_level(logging.ERROR):
        assert drive(toy_engine(Fcfs(), toy_kv(64, 4)), [(0, request)]).outputs("r") == expected(request)
    assert [record.message for record in caplog.records] == [
        "decoding strategy ToyGreedy of turnout.testing.toy.decodings: forget failed: "
        "ZeroDivisionError: what was that; requests go on all the same (said once)"
    ]


def test_counters_of_all_strategies_are_reported_together(monkeypatch):
    monkeypatch.setattr(ToyGreedy, "counters", lambda self: {"asked": 2, "own": 1})
    monkeypatch.setattr(ToyLookup, "counters", lambda self: {"asked": 3})
    assert toy_engine(Fcfs(), toy_kv(8, 4)).stats().counters == {"asked": 5, "own": 1}


def test_a_strategy_that_cannot_count_keeps_no_others_counters_back(monkeypatch, caplog):
    def broken(self):
        raise ZeroDivisionError("by none")

    monkeypatch.setattr(ToyGreedy, "counters", broken)
    monkeypatch.setattr(ToyLookup, "counters", lambda self: {"asked": 3})
    assert toy_engine(Fcfs(), toy_kv(8, 4)).stats().counters == {"asked": 3}
    assert [record.message for record in caplog.records] == [
        "decoding strategy ToyGreedy of turnout.testing.toy.decodings: counters failed: "
        "ZeroDivisionError: by none; requests go on all the same (said once)"
    ]


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_what_no_counter_can_show_is_left_out(value, monkeypatch, caplog):
    """It made the whole exposition of metrics invalid."""
    monkeypatch.setattr(ToyGreedy, "counters", lambda self: {"asked": 2, "own": value})
    monkeypatch.setattr(ToyLookup, "counters", lambda self: {"asked": 3})
    assert toy_engine(Fcfs(), toy_kv(8, 4)).stats().counters == {"asked": 3}
    assert "counters failed: ValueError: " in caplog.text and "own is " in caplog.text


# ------------------------------------------------------------------ memory for drafts


def test_no_request_is_preempted_to_make_room_for_drafts(monkeypatch):
    """Requests whose tokens just fit were preempted for drafts."""

    def always(self, sequences):
        for sequence in sequences:
            yield sequence, [1] * 8

    for prompts in ([[1, 2, 3]] * 3, [[1, 2, 3], [4, 5]]):
        with monkeypatch.context() as patch:
            patch.setattr(ToyLookup, "draft", always)
            length = max(map(len, prompts)) + 9
            kv = toy_kv(len(prompts) * -(-length // 4), 4)
            engine = toy_engine(Fcfs(), kv, budget=64)
            requests = [toy_request(str(n), prompt, "lookup", 9) for n, prompt in enumerate(prompts)]
            outcome = drive(engine, [(0, request) for request in requests])
        assert engine.stats().preemptions == 0
        assert [outcome.outputs(request.id) for request in requests] == [expected(r) for r in requests]


# ------------------------------------------------------------------ options that are plugins


class Wraps(ToyGreedy):
    def __init__(self, proposer: Proposer, other: Proposer | None = None) -> None:
        self.proposer, self.other = proposer, other


@pytest.fixture
def registry():
    module = ModuleType("wrapping")
    module.register_decodings = hookimpl(lambda register: register("wraps", Wraps))
    return Registry.load(extra=[module])


def test_an_option_that_is_a_plugin_is_built_with_its_own_options(registry):
    built = registry.create("decoding", "wraps:proposer='ngram:longest=6,shortest=5',other=ngram")
    assert isinstance(built.proposer, NGram) and isinstance(built.other, NGram)
    assert (built.proposer._longest, built.proposer._shortest) == (6, 5)
    assert registry.create("decoding", "wraps:proposer=ngram").other is None


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("wraps", ConfigError, "the option 'proposer' must be given"),
        ("wraps:proposer=nobody", UnknownPlugin, "no proposer is called 'nobody'"),
        ("wraps:proposer=ngram:longst=3", ConfigError, "proposer 'ngram': unknown option 'longst'"),
    ],
)
def test_what_is_wrong_with_it_is_said_of_it(registry, spec, error, message):
    with pytest.raises(error, match=message):
        registry.create("decoding", spec)
