"""A strategy that keeps finished answers itself ends its request with them, whole."""

from __future__ import annotations

import random

import pytest
from toy import EOS, ToyDecoding, argmax, drive, expected, log_softmax, toy_engine, toy_kv, toy_request

from turnout.core.interfaces.kv import PoolSize
from turnout.core.types.decision import Choice, Completion, Continuation
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.plan import Logits
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.schedulers.fcfs import Fcfs


class Keeps(ToyDecoding):
    """Starts with the `n` most likely tokens, each greedy from there, and answers when all are finished.

    What is finished is in `Request.state`, and a sequence's score counts its steps.
    """

    name = "keeps"
    streams = False

    def choose(self, request, rows):
        nexts = self.starts(request, rows) if request.state is None else self.continuations(rows)
        request.state = request.state or []
        goes_on = []
        for sequence, token in nexts:
            output = [*sequence.output, token]
            if token == EOS or sequence.room == 1:
                reason = "stop" if token == EOS else "length"
                request.state.append(Choice(output, sequence.score, reason, EOS if token == EOS else None))
            else:
                goes_on.append(Continuation(sequence, [token], score=sequence.score - 1))
        return goes_on or [Completion(request, request.state)]

    def starts(self, request, rows):
        ((sequence, (row,)),) = rows.items()
        best = sorted(range(len(row)), key=lambda token: -row[token])
        return [(sequence, token) for token in best[: request.params.n]]

    def continuations(self, rows):
        return [(sequence, argmax(row)) for sequence, (row,) in rows.items()]


def keeps_engine(kv=None, *, budget=16, strategy=Keeps, choose=None):
    """An engine with that strategy, or with one of another `choose`."""
    decoding = strategy()
    if choose is not None:
        decoding.choose = choose
    return toy_engine(Fcfs(), kv or toy_kv(64, 4), budget=budget, slots=24, decodings=[decoding])


def serve(engine, *specs):
    for spec in specs:
        engine.add(spec)
    deltas = []
    while engine.busy:
        deltas += engine.step()
    assert engine.stats().kv_free == engine.stats().kv_capacity
    return deltas


@pytest.mark.parametrize(
    "kv",
    [
        lambda: toy_kv(22, 4),
        pytest.param(lambda: toy_kv(80, 1), marks=pytest.mark.slow),
        lambda: ContiguousCache(PoolSize(88)),
    ],
)
def test_choices_come_whole_and_last_and_survive_preemption(kv):
    preemptions = 0
    for trial in range(60):
        rng = random.Random(trial)
        prompts = [[rng.randrange(1, 7) for _ in range(rng.randrange(1, 9))] for _ in range(6)]
        kept = [toy_request(f"k{i}", prompt, "keeps", 12, n=4) for i, prompt in enumerate(prompts)]
        engine = keeps_engine(kv(), budget=rng.randrange(4, 16))
        deltas = serve(engine, *kept)
        preemptions += engine.stats().preemptions
        for spec in kept:
            choices = [delta for delta in deltas if delta.request_id == spec.id]
            assert [choice.index for choice in choices] == [0, 1, 2, 3]
            same = toy_request("p", spec.prompt, "parallel", 12, n=4)
            assert sorted(choice.tokens for choice in choices) == expected(same)
            for choice in choices:
                stopped = choice.tokens[-1] == EOS
                assert choice.finish_reason == ("stop" if stopped else "length")
                assert choice.stop_token == (EOS if stopped else None)
                # Each token took a step, and forks and preemptions kept the score.
                assert choice.cumulative_logprob == 1 - len(choice.tokens)
    assert preemptions or isinstance(kv(), ContiguousCache)


def test_what_still_lives_is_dropped():
    def impatient(request, rows):
        if len(request.live) < 3:
            (sequence,) = request.live
            return [Continuation(sequence, [token]) for token in (1, 2, 3)]
        best = max(log_softmax(row)[0] for (row,) in rows.values())
        return [Completion(request, [Choice([1, 2], best, "length")] * 3)]

    first, *others = serve(keeps_engine(choose=impatient), toy_request("r", [1, 2, 3], "keeps", 50, n=3))
    assert (first.tokens, first.finish_reason, len(others)) == ([1, 2], "length", 2)


def test_fewer_choices_than_asked_for_are_that_requests_error_and_no_others():
    def only_one(request, rows):
        return [Completion(request, [Choice([1], 0.0, "length")])]

    deltas = serve(
        keeps_engine(choose=only_one),
        toy_request("two", [1, 2], "keeps", 5, n=2),
        toy_request("one", [1, 2], "keeps", 5),
    )
    (two,) = [delta for delta in deltas if delta.request_id == "two"]
    assert two.error == "n=2 choices were asked for, but what the request allows leaves only 1"
    assert two.error_kind == "invalid"
    (one,) = [delta for delta in deltas if delta.request_id == "one"]
    assert not one.error and one.tokens == [1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda r: [Completion(r, [Choice([1], 0.0, "length")] * 2)], "with 2 choices, n is 1"),
        (lambda r: [Completion(r, [Choice([], 0.0, "length")])], "a choice without tokens"),
        (
            lambda r: [Completion(r, [Choice([1], 0.0, "length")]), Continuation(r.live[0], [1])],
            "both continued and completed",
        ),
        (lambda r: [], "gave no continuation"),
    ],
)
def test_a_completion_that_cannot_be_is_the_strategys_fault(wrong, message):
    engine = keeps_engine(choose=lambda request, rows: wrong(request))
    (delta,) = serve(engine, toy_request("r", [1, 2], "keeps", 5))
    assert delta.error_kind == "internal" and message in delta.error


def test_a_request_that_it_was_not_asked_about_cannot_be_completed():
    asked = []

    class Confused(Keeps):
        def decide(self, requests, logits: Logits):
            asked.extend(requests)
            return [Completion(asked[0], [Choice([1], 0.0, "length")])]

    engine = keeps_engine(strategy=Confused)
    serve(engine, toy_request("first", [1, 2], "keeps", 5))
    (delta,) = serve(engine, toy_request("second", [1, 2], "keeps", 5))
    assert "which it was not asked about" in delta.error


@pytest.mark.parametrize("logprobs", [None, 0])
def test_whole_choices_have_the_log_probabilities_that_were_asked_for(logprobs):
    details = [TokenLogprobs(4, -1.5, [])]

    def choose(request, rows):
        return [Completion(request, [Choice([4], -1.5, "length", details=details)])]

    params = SamplingParams(max_tokens=4, stop=("keeps",), logprobs=logprobs)
    (delta,) = serve(keeps_engine(choose=choose), RequestSpec(id="r", prompt=[1, 2], params=params, seed=0))
    assert delta.logprobs == (None if logprobs is None else details)


def test_timing_comes_with_the_last_choice():
    params = SamplingParams(n=2, max_tokens=3, stop=("keeps",))
    spec = RequestSpec(id="r", prompt=[1, 2, 3], params=params, seed=0, timing=True)
    first, last = serve(keeps_engine(), spec)
    assert first.timing is None and last.timing is not None and last.timing.finished is not None


def test_other_strategies_go_on_beside_it():
    engine = keeps_engine()
    greedy = toy_request("g", [3, 2, 1], "greedy", 20)
    outcome = drive(engine, [(0, greedy), (0, toy_request("k", [1, 2], "keeps", 4, n=2))])
    assert outcome.outputs("g") == expected(greedy)
