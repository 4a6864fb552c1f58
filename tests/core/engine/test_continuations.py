"""What a strategy may decide beyond a token for each sequence: several at once, drafted or not, and forks."""

from __future__ import annotations

from itertools import cycle

import pytest
from toy import (
    EOS,
    VOCABULARY,
    ToyGreedy,
    ToyLookup,
    ToyParallel,
    argmax,
    drive,
    expected,
    toy_engine,
    toy_kv,
    toy_logits,
    toy_request,
)

from turnout.core.engine.apply_decisions import apply_continuations
from turnout.core.interfaces.kv import PoolSize, Span
from turnout.core.types.decision import Continuation
from turnout.core.types.request import Request
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.schedulers.fcfs import Fcfs


@pytest.fixture
def kv():
    return PagedCache(PoolSize(64), 4, Lru())


@pytest.fixture
def sequence(kv):
    """One token away from its next logits, and draft tokens were computed with that token."""
    request = Request(toy_request("r", [1, 2, 3], "greedy", 20), ToyGreedy(), 0.0, 23, frozenset({EOS}))
    (sequence,) = request.live
    assert kv.reserve([Span(sequence, 0, 6)])
    sequence.computed, sequence.draft = 3, [4, 5, 6]
    return sequence


def decide(sequence, kv, *continuations):
    apply_continuations(sequence.request, [Continuation(sequence, tokens) for tokens in continuations], kv)
    return [(child.tokens[3:], child.computed) for child in sequence.request.live]


def test_right_drafts_are_computed_and_the_token_after_them_is_not(sequence, kv):
    assert decide(sequence, kv, [4, 5, 6, 1]) == [([4, 5, 6, 1], 6)]


def test_what_came_instead_of_a_wrong_draft_token_is_to_be_computed(sequence, kv):
    assert decide(sequence, kv, [4, 2]) == [([4, 2], 4)]


def test_something_is_left_to_compute_when_no_token_came_after_the_drafts(sequence, kv):
    assert decide(sequence, kv, [4, 5]) == [([4, 5], 4)]


def test_each_child_has_the_kv_of_the_drafts_that_are_its_own_tokens(sequence, kv):
    """All of them had as much as the longest: a draft token's KV was another token's, or nothing was left to
    compute and the request stayed for ever."""
    assert decide(sequence, kv, [4, 5, 6, 1], [4, 2], [3]) == [([4, 5, 6, 1], 6), ([4, 2], 4), ([3], 3)]


def test_several_tokens_that_were_not_drafted_are_all_to_be_computed(sequence, kv):
    """All but the last were taken to be right drafts, with whatever lay in their memory."""
    sequence.draft = []
    assert decide(sequence, kv, [4, 5, 6]) == [([4, 5, 6], 3)]


def test_drafts_beyond_the_budget_are_left_out(monkeypatch):
    """Several sequences with more draft tokens than the budget allowed were never granted anything."""

    def draft(self, sequences):
        for sequence in sequences:
            draft_tokens = []
            for _ in range(5):
                draft_tokens.append(argmax(toy_logits(sequence.tokens + draft_tokens)))
            yield sequence, draft_tokens

    def choose(self, request, rows):
        if request.forks == 0:
            return first(self, request, rows)
        return [Continuation(sequence, [argmax(row) for row in logits]) for sequence, logits in rows.items()]

    first = ToyParallel.choose
    monkeypatch.setattr(ToyParallel, "draft", draft)
    monkeypatch.setattr(ToyParallel, "rows", 6)
    monkeypatch.setattr(ToyParallel, "choose", choose)
    engine = toy_engine(Fcfs(), toy_kv(64, 4), budget=5)
    spec = toy_request("r", [1, 2, 3], "parallel", 12, n=3)
    outcome = drive(engine, [(0, spec)], max_steps=100)
    assert outcome.outputs("r") == expected(spec)
    assert outcome.steps < 10, "the draft tokens that fit should have been computed"


@pytest.mark.parametrize("token", [-1, VOCABULARY, 10**7])
def test_a_draft_token_outside_the_vocabulary_is_not_made(monkeypatch, caplog, token):
    """The model looked it up beyond the end of its embedding, which ended the process."""
    monkeypatch.setattr(ToyGreedy, "draft", lambda self, sequences: [(s, [token]) for s in sequences])
    monkeypatch.setattr(ToyGreedy, "rows", 2)
    engine = toy_engine(Fcfs(), toy_kv(64, 4))
    spec = toy_request("r", [1, 2, 3], "greedy", 12)
    outcome = drive(engine, [(0, spec)], max_steps=100)
    assert outcome.outputs("r") == expected(spec)
    assert f"gave token {token}, which is outside the vocabulary of 7 tokens" in caplog.text


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        (
            lambda sequence: [Continuation(sequence, [VOCABULARY])],
            "gave token 7, which is outside the vocabulary",
        ),
        # It ended the engine, which looked for memory that the sequence had given back.
        (
            lambda sequence: 2 * [Continuation(sequence.fork(), [1])],
            "<Request bad prompt=3 live=1> that is no longer live",
        ),
    ],
    ids=["no token", "a sequence that is gone"],
)
def test_a_decision_that_cannot_be_ends_its_request_and_no_other(monkeypatch, decisions, message):
    def choose(self, request, rows):
        return [decision for sequence in rows for decision in decisions(sequence)]

    monkeypatch.setattr(ToyGreedy, "choose", choose)
    good = toy_request("good", [1, 2, 3], "parallel", 6)
    bad = toy_request("bad", [1, 2, 3], "greedy", 6)
    engine = toy_engine(Fcfs(), toy_kv(64, 4))
    outcome = drive(engine, [(0, bad), (0, good)], max_steps=100, errors=True)
    assert outcome.outputs("good") == expected(good)
    assert message in outcome.errors["bad"]


def test_a_draft_beyond_the_declared_rows_is_a_fault(monkeypatch, caplog):
    """Memory is planned for `rows` rows of logits."""
    monkeypatch.setattr(ToyGreedy, "draft", lambda self, sequences: [(s, [1] * 40) for s in sequences])
    monkeypatch.setattr(ToyGreedy, "rows", 3)
    spec = toy_request("r", [1, 2, 3], "greedy", 12)
    outcome = drive(toy_engine(Fcfs(), toy_kv(64, 4), budget=64), [(0, spec)], max_steps=100)
    assert outcome.outputs("r") == expected(spec)
    assert "draft failed: ValueError: drafted 40 tokens; `rows` allows 2" in caplog.text


def test_drafts_that_never_end_are_a_fault(monkeypatch, caplog):
    """The engine hung."""
    monkeypatch.setattr(ToyLookup, "draft", lambda self, sequences: cycle([(sequences[0], [1])]))
    spec = toy_request("r", [1, 2, 3], "lookup", 12)
    outcome = drive(toy_engine(Fcfs(), toy_kv(64, 4), budget=64), [(0, spec)], max_steps=100)
    assert outcome.outputs("r") == expected(spec)
    assert "draft failed: ValueError: gave more than 1 answers" in caplog.text


def test_right_drafts_save_steps():
    """The toy's were all refused, so that tests of drafts had none."""
    steps = {}
    for strategy in ("greedy", "lookup"):
        spec = toy_request("r", [1, 2, 3, 1, 2], strategy, 40)
        outcome = drive(toy_engine(Fcfs(), toy_kv(128, 4), budget=64), [(0, spec)], max_steps=100)
        assert outcome.outputs("r") == expected(spec)
        steps[strategy] = outcome.steps
    assert steps["lookup"] < steps["greedy"]


def test_a_draft_may_be_any_sequence_of_tokens(monkeypatch, caplog):
    """A tuple ended the engine."""
    monkeypatch.setattr(ToyLookup, "draft", lambda self, sequences: [(s, (1, 2)) for s in sequences])
    spec = toy_request("r", [1, 2, 3], "lookup", 12)
    outcome = drive(toy_engine(Fcfs(), toy_kv(64, 4), budget=64), [(0, spec)], max_steps=100)
    assert outcome.outputs("r") == expected(spec)
    assert not caplog.records
