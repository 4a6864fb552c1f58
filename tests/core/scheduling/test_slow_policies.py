"""A scheduling policy that takes longer than a step can bear is named, once, and counted."""

from __future__ import annotations

import logging
from itertools import accumulate, chain, cycle

import pytest
from toy import drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.engine.engine import Engine
from turnout.core.scheduling.policy_guard import MAX_ORDER_SECONDS
from turnout.plugins.schedulers.fcfs import Fcfs


class Ponderous(Fcfs):
    """Its orders take as long as they are told to."""


def engine(seconds: float) -> Engine:
    """Whose policy takes that long for an order, by a stopwatch of its own."""
    made = toy_engine(Ponderous(), toy_kv(24, 4))
    ticks = iter(number * seconds for number in range(10**6))
    made.scheduler._guard._stopwatch = lambda: next(ticks)
    return made


REQUESTS = [(0, toy_request(f"r{i}", [1, 2, 3, i], "greedy", 5)) for i in range(4)]


def test_a_slow_order_is_named_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    slow = engine(2 * MAX_ORDER_SECONDS)
    with caplog.at_level(logging.WARNING):
        outcome = drive(slow, REQUESTS)
    assert (
        "Ponderous of test_slow_policies took 10.0 ms to order 4 requests" in caplog.text
        and len(caplog.records) == 1
    )
    assert slow.stats().slow_orders >= outcome.steps > 1
    assert slow.stats().policy_faults == 0
    for _, spec in REQUESTS:
        assert outcome.outputs(spec.id) == expected(spec)


def test_a_fast_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    fast = engine(MAX_ORDER_SECONDS / 2)
    drive(fast, REQUESTS)
    assert fast.stats().slow_orders == 0 and not caplog.records


def test_a_hiccup_is_counted_and_not_named(caplog: pytest.LogCaptureFixture) -> None:
    hiccuping = engine(0)
    ticks = iter(MAX_ORDER_SECONDS * 2 * ((number + 1) // 4) for number in range(10**6))  # every other order
    hiccuping.scheduler._guard._stopwatch = lambda: next(ticks)
    outcome = drive(hiccuping, [(0, toy_request("r", [1, 2, 3], "greedy", 12))])
    assert not caplog.records
    assert 3 <= hiccuping.stats().slow_orders < outcome.steps


def test_a_habit_that_returns_is_not_named_again(caplog: pytest.LogCaptureFixture) -> None:
    """Four slow orders, a fast one, and so on."""
    moody = engine(0)
    lengths = cycle([2 * MAX_ORDER_SECONDS] * 4 + [0.0])
    moments = accumulate(chain.from_iterable((0.0, length) for length in lengths))
    moody.scheduler._guard._stopwatch = lambda: next(moments)
    drive(moody, [(0, toy_request("r", [1, 2, 3], "greedy", 24))])
    assert len(caplog.records) == 1


def test_those_of_earlier_policies_count() -> None:
    slow = engine(2 * MAX_ORDER_SECONDS)
    drive(slow, REQUESTS)
    before = slow.stats().slow_orders
    slow.scheduler.policy = Fcfs()
    assert slow.stats().slow_orders == before > 0
