"""A policy's fault, or a length predictor's, is named and survived; under strict plugins it is fatal."""

from __future__ import annotations

import logging
from itertools import cycle

import numpy as np
import pytest
from toy import drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.errors import PolicyError
from turnout.core.interfaces.scheduling import Drop, LengthPredictor, SchedulingPolicy, Share
from turnout.plugins.schedulers.fcfs import Fcfs

PROMPT = [1, 2, 3, 4, 5]


def small_engine(policy, *, blocks=32, **options):
    return toy_engine(policy, toy_kv(blocks, 4), **options)


class Raises(SchedulingPolicy):
    def order(self, view):
        yield from view.running
        raise RuntimeError("out of ideas")


class Forgets(SchedulingPolicy):
    def order(self, view):
        return view.waiting


class Idles(SchedulingPolicy):
    def order(self, view):
        return view.running


class Repeats(SchedulingPolicy):
    def order(self, view):
        return (*view.running, *view.waiting) * 2


class Endless(SchedulingPolicy):
    """Was read to its end, which never came: the engine hung, and its memory grew."""

    def order(self, view):
        return cycle((*view.running, *view.waiting))


class Invents(SchedulingPolicy):
    def order(self, view):
        return ["nobody", *view.running, *view.waiting]


class WrongVictim(Fcfs):
    def victim(self, request, running):
        return "nobody"


FAULTY = (Raises, Forgets, Idles, Repeats, Endless, Invents, WrongVictim)


@pytest.mark.parametrize("policy", FAULTY)
def test_a_faulty_policy_is_named_once_and_loses_nothing(policy, caplog):
    engine = small_engine(policy(), blocks=8, budget=8, strict=False)
    arrivals = [(0, toy_request(f"r{i}", [1 + i, 2, 3], "greedy", 12)) for i in range(4)]
    with caplog.at_level(logging.ERROR):
        outcome = drive(engine, arrivals)
    assert [outcome.outputs(s.id) for _, s in arrivals] == [expected(s) for _, s in arrivals]
    assert engine.stats().policy_faults >= 1
    assert [record.message for record in caplog.records] == [caplog.records[0].message]
    assert policy.__name__ in caplog.records[0].message
    instead = "newest admission gives way" if policy is WrongVictim else "served in arrival order"
    assert caplog.records[0].message.endswith(f"{instead} (said once)")


@pytest.mark.parametrize("policy", FAULTY)
def test_a_faulty_policy_is_fatal_when_strict(policy):
    engine = small_engine(policy(), blocks=8, budget=8, strict=True)
    with pytest.raises(PolicyError, match=policy.__name__):
        drive(engine, [(0, toy_request(f"r{i}", [1 + i, 2, 3], "greedy", 12)) for i in range(4)])


class Wild(SchedulingPolicy):
    """Answers what it was told to."""

    def __init__(self, answer):
        self.answer = answer

    def order(self, view):
        return [self.answer(request) for request in (*view.running, *view.waiting)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda request: None, "ordered None; expected requests of the view, or Shares or Drops of them"),
        (lambda request: Share("r", 3), "ordered Share.*; expected requests of the view"),
        (lambda request: Drop(request, None), "dropped <Request r prompt=5 live=1> without saying why: None"),
        (lambda request: Share(request, 0.5), "limited <Request r .*> to 0.5 tokens; expected an integer"),
        (lambda request: Share(request, True), "limited <Request r .*> to True tokens; expected an integer"),
    ],
)
def test_what_is_no_order_is_named(answer, message):
    engine = small_engine(Wild(answer), strict=True)
    with pytest.raises(PolicyError, match=f"scheduling policy Wild of .*: order failed: {message}"):
        drive(engine, [(0, toy_request("r", PROMPT, "greedy", 3))])


@pytest.mark.parametrize("limit", [None, "x", 0.5, float("nan"), True])
def test_a_limit_that_is_no_integer_ends_nothing(limit):
    """The scheduler compared it outside the guard, and the engine died of it."""
    engine = small_engine(Wild(lambda request: Share(request, limit)), strict=False)
    specs = [toy_request(f"r{i}", [1 + i, 2, 3], "greedy", 4) for i in range(2)]
    outcome = drive(engine, [(0, spec) for spec in specs])
    assert [outcome.outputs(spec.id) for spec in specs] == [expected(spec) for spec in specs]
    assert engine.stats().policy_faults >= 1


def test_a_numpy_integer_is_a_limit():
    engine = small_engine(Wild(lambda request: Share(request, np.int64(2))), strict=True)
    outcome = drive(engine, [(0, spec := toy_request("r", PROMPT, "greedy", 3))])
    assert outcome.outputs("r") == expected(spec)
    assert engine.stats().policy_faults == 0


def test_a_request_that_is_gone_cannot_be_ordered():
    class Remembers(Fcfs):
        def order(self, view):
            self.first = getattr(self, "first", view.waiting)
            return self.first

    engine = small_engine(Remembers(), strict=True)
    engine.add(toy_request("r", PROMPT, "greedy", 3))
    engine.step()
    engine.abort("r")
    engine.add(toy_request("s", PROMPT, "greedy", 3))
    with pytest.raises(PolicyError, match=r"ordered <Request r .*>, which is neither running nor waiting"):
        engine.step()


def test_a_policy_that_fails_to_observe_is_named_and_harms_no_request(caplog):
    """The log named no error where that had no text of its own."""

    class Deaf(Fcfs):
        def observe(self, request, tokens, now):
            raise ZeroDivisionError

    request = toy_request("r", PROMPT, "greedy", 3)
    engine = small_engine(Deaf(), strict=False)
    assert drive(engine, [(0, request)]).outputs("r") == expected(request)
    assert engine.stats().policy_faults == 3
    (record,) = caplog.records
    assert record.message.startswith(
        "scheduling policy Deaf of test_policy_faults: observe failed: ZeroDivisionError"
    )
    assert "arrival order" not in record.message


class Clairvoyant(LengthPredictor):
    def predict(self, request):
        return float("nan")

    def observe(self, request):
        raise ValueError("too late")


class ByPrediction(SchedulingPolicy):
    def order(self, view):
        yield from view.running
        yield from sorted(view.waiting, key=view.predict)


def test_a_predictors_fault_is_its_own_and_the_prediction_is_then_max_tokens(caplog):
    engine = small_engine(ByPrediction(), strict=True, slots=1, predictor=Clairvoyant())
    arrivals = [(0, toy_request(f"r{n}", [n, 2, 3], "greedy", n)) for n in (6, 3, 5)]
    outcome = drive(engine, arrivals)
    assert list(outcome.tokens) == ["r3", "r5", "r6"]
    assert engine.stats().policy_faults == 0
    named = "length predictor Clairvoyant of test_policy_faults"
    predicting, observing = [record.message for record in caplog.records]
    assert predicting.startswith(f"{named}: predict failed: ValueError: predicted nan")
    assert observing.startswith(f"{named}: observe failed: ValueError: too late")
