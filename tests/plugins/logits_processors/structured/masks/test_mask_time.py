"""Masks are measured one by one only after a slow step, and only slow ones count."""

from __future__ import annotations

import pytest
from toy import toy_request

from turnout.core.types.request import Request
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.logits_processors.structured.masks import mask_time
from turnout.plugins.logits_processors.structured.masks.mask_time import MaskTime


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of both clocks."""
    now = [100.0]
    monkeypatch.setattr(mask_time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(mask_time, "thread_time", lambda: now[0])
    return now


def a_request() -> Request:
    return Request(toy_request("r", [1], "greedy", 3), Greedy(), 0.0, 10, frozenset())


def step(time: MaskTime, clock: list[float], seconds: float, rows: int = 1) -> float:
    """A step in which one mask takes so long. Returns what was measured of it."""
    with time.step(rows):
        begun = time.begin()
        clock[0] += seconds
        return time.since(begun)


def test_only_the_step_after_a_slow_one_is_measured(clock: list[float]) -> None:
    time = MaskTime()
    measured = [step(time, clock, seconds) for seconds in (0.001, 0.1, 0.1, 0.001, 0.1)]
    assert measured == [0, 0, pytest.approx(0.1), pytest.approx(0.001), 0]


def test_many_rows_may_take_longer(clock: list[float]) -> None:
    time = MaskTime()
    step(time, clock, 0.1, rows=100)
    assert not time.measuring
    step(time, clock, 0.1, rows=50)
    assert time.measuring


def test_what_slow_masks_take_is_summed_for_each_request() -> None:
    time, slow, quick = MaskTime(), a_request(), a_request()
    assert [time.too_long(slow, 0.2) for _ in range(3)] == [False, False, True]
    assert not any(time.too_long(quick, 0.02) for _ in range(100))
