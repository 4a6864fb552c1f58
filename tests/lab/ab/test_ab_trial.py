"""What a live test makes of the requests it is told of."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest

from turnout.core.interfaces.trial import Outcome
from turnout.lab.ab.blocks import BlockSize
from turnout.lab.ab.live_trial import LiveTrial


class Traffic:
    """Requests to both arms in turn, on a clock of our own."""

    def __init__(self, seconds: float = 10.0, requests: int = 5) -> None:
        self.now = 0.0
        self.random = Random(1)
        size = BlockSize(seconds=seconds, requests=requests)
        self.trial = LiveTrial("base", "long", size=size, clock=lambda: self.now)
        self.policy_faults = {"base": 0, "long": 0}

    def request(self, arm: str, first: float = 0.1, each: float = 0.02, tokens: int = 10) -> None:
        leave = self.trial.arrived(arm)
        leave([self.outcome(first, each, tokens)])

    def outcome(self, first: float = 0.1, each: float = 0.02, tokens: int = 10) -> Outcome:
        times = [self.now + first + each * number for number in range(tokens)]
        return Outcome(self.now, times, times[-1], 7, "length")

    def blocks(self, count: int, slower: float = 1.0) -> None:
        """`slower`: how much the second arm is."""
        for _ in range(5 * count):
            noise = self.random.uniform(0.9, 1.1)
            self.request("base", first=0.1 * noise, each=0.02 * noise)
            noise *= self.random.uniform(0.97, 1.03)
            self.request("long", first=0.1 * noise * slower, each=0.02 * noise * slower)
            self.now += 2.0

    def row(self, metric: str = "mean_e2el") -> dict[str, Any]:
        return next(row for row in self.results["differences"]["long"] if row["metric"] == metric)

    @property
    def results(self) -> dict[str, Any]:
        return json.loads(msgspec.json.encode(self.trial.results(self.policy_faults)))


def test_before_anything_has_come() -> None:
    results = Traffic().results
    assert (results["blocks"], results["over"], results["findings"]) == (0, False, [])
    assert {row["verdict"] for row in results["differences"]["long"]} == {"not measured yet"}


def test_a_slower_arm_is_found_and_said_so() -> None:
    traffic = Traffic()
    traffic.blocks(30, slower=1.3)
    row = traffic.row()
    assert row["declared"] and row["low"] < 0.3 < row["high"]
    assert row["verdict"].startswith("long raises mean E2EL by 30% [") and row["verdict"].endswith(": worse")
    assert row["other"] / row["base"] == pytest.approx(1.3, rel=0.02)


def test_an_arm_that_gets_no_requests_takes_no_memory_for_those_of_the_other() -> None:
    """The block was never full, and kept the times of all tokens."""
    traffic = Traffic()

    def requests(count: int) -> int:
        for _ in range(count):
            traffic.now += 0.1
            traffic.request("base")
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = requests(15_000)  # each of ten tokens: percentiles are exact no more
        assert requests(15_000) - before < 2_000_000
    finally:
        tracemalloc.stop()


def test_an_equal_arm_is_not_declared_to_differ() -> None:
    traffic = Traffic()
    traffic.blocks(12)
    row = traffic.row()
    assert not row["declared"] and row["low"] < 0 < row["high"]
    assert row["verdict"].startswith(("no difference shown yet: needs about ", "no difference of 2%"))
    traffic.blocks(100)
    assert traffic.row()["verdict"] == "no difference of 2% or more"


def test_how_long_it_would_take_is_said_in_time() -> None:
    traffic = Traffic()
    for _ in range(60):
        traffic.request("base", first=traffic.random.uniform(0.1, 0.2))
        traffic.request("long", first=traffic.random.uniform(0.1, 0.2))
        traffic.now += 2.0
    assert "more blocks (" in traffic.row()["verdict"] and traffic.row()["verdict"].endswith("to see 2%")


def test_a_block_is_as_long_as_both_arms_need() -> None:
    traffic = Traffic(seconds=10, requests=5)
    for _ in range(50):
        traffic.request("base")
        traffic.now += 1.0
    assert traffic.results["blocks"] == 0, "the other arm had none"
    for _ in range(5):
        traffic.request("long")
    traffic.request("base")
    assert traffic.results["blocks"] == 1


def test_a_block_waits_for_its_slowest_request() -> None:
    """Else figures would leave out who is slow, and more of them in the slower arm."""
    traffic = Traffic()
    slow = traffic.trial.arrived("long")
    traffic.blocks(1)
    traffic.blocks(1)
    assert traffic.results["blocks"] == 0
    began = traffic.now
    slow([Outcome(0.0, [began], began, 7, "stop")])
    assert traffic.results["blocks"] == 1
    traffic.request("base")
    assert traffic.results["blocks"] == 2, "the later block was complete before"


def test_who_left_or_failed_is_counted_and_not_measured() -> None:
    traffic = Traffic()
    for reason, error in (("abort", ""), ("error", "the engine fell"), ("error", "it fell again")):
        traffic.trial.arrived("long")([Outcome(0.0, [], 1.0, 7, reason, error)])
    traffic.request("long")
    traffic.trial.arrived("base")([])  # refused
    requests = traffic.results["requests"]
    assert requests["long"] == {
        "requests": 4, "completed": 1, "failed": 2, "left": 1, "refused": 0,
        "prompt_tokens": 7, "output_tokens": 10,
    }  # fmt: skip
    assert requests["base"]["requests"] == 1 and requests["base"]["completed"] == 0
    assert traffic.results["findings"] == ["long: 2 of 3 answers failed, the latest because: it fell again"]


def test_requests_are_completed_or_failed_or_left_or_refused_or_run() -> None:
    """A request that an arm refused was counted among those that came, and nowhere else."""
    traffic = Traffic()
    traffic.request("long")
    ends = [traffic.trial.arrived("long") for _ in range(3)]
    ends[0]([])
    ends[1]([])
    counts = traffic.results["requests"]["long"]
    ended = counts["completed"] + counts["failed"] + counts["left"] + counts["refused"]
    assert counts["refused"] == 2 and counts["requests"] == ended + 1
    assert traffic.results["requests"]["base"]["refused"] == 0


def test_each_choice_of_a_request_is_measured() -> None:
    traffic = Traffic()
    traffic.trial.arrived("base")([traffic.outcome(), traffic.outcome(each=0.03)])
    assert traffic.results["requests"]["base"]["completed"] == 2


def test_when_an_arm_ends_so_do_the_measurements() -> None:
    """Who came before still counts when it ends; all that comes is still tallied, and takes no room."""
    traffic = Traffic()
    traffic.blocks(2)
    running = traffic.trial.arrived("base")
    blocks = traffic.results["blocks"]
    traffic.trial.close()
    running([traffic.outcome()])
    for _ in range(1000):
        traffic.request("base")
        traffic.now += 1.0
    results = traffic.results
    assert (results["over"], results["blocks"]) == (True, blocks)
    assert results["requests"]["base"]["requests"] == 1011


def test_an_arm_whose_policy_fails_is_named() -> None:
    traffic = Traffic()
    traffic.policy_faults["long"] = 1
    (finding,) = traffic.results["findings"]
    assert finding.startswith("long: 1 answer of its scheduling policy could not be carried out")


def test_blocks_that_resemble_their_neighbours_are_named() -> None:
    traffic = Traffic()
    for number in range(40):
        traffic.random.seed(number)
        traffic.blocks(1, slower=1.0 + 0.3 * (number % 20 < 10))
    (finding,) = traffic.results["findings"]
    assert finding.startswith("successive blocks are alike (autocorrelation 0.")


def test_intervals_become_narrower() -> None:
    traffic, widths = Traffic(), []
    for _ in range(4):
        traffic.blocks(10)
        widths.append(traffic.row()["high"] - traffic.row()["low"])
    assert all(later < earlier for earlier, later in pairwise(widths))
