"""Figures taken in parts are those taken at once."""

from __future__ import annotations

import random

import pytest

from turnout.lab.jobs.job import Job
from turnout.lab.results.distribution import Distribution
from turnout.lab.results.goodput import Goodput
from turnout.lab.results.record import Record
from turnout.lab.results.summary import Accumulator, summarize

RANKS = [0.0, 25.0, 50.0, 99.0, 100.0]


def distribution(values: list[float], exact: int) -> Distribution:
    made = Distribution(exact)
    for value in values:
        made.add([value])
    return made


@pytest.mark.parametrize(
    ("first", "second"), [(100, 100), (10, 500), (500, 10), (500, 900), (0, 50), (500, 0)]
)
def test_distributions_are_merged_exact_or_not(first: int, second: int) -> None:
    rng = random.Random(first)
    values = [rng.lognormvariate(0, 2) for _ in range(first + second)]
    parts = distribution(values[:first], 200), distribution(values[first:], 200)
    whole = distribution(values, 200)
    merged = parts[0]
    merged.merge(parts[1])
    assert merged.count == whole.count
    assert merged.mean == pytest.approx(whole.mean)
    assert merged.std == pytest.approx(whole.std)
    assert merged.percentiles(RANKS) == pytest.approx(whole.percentiles(RANKS), rel=0.003)


def record(index: int) -> Record:
    job = Job(0.1 * index, 10 + index, 3)
    times = [0.1 * index + 0.02 * (token + 1 + index % 5) for token in range(3)]
    made = Record(job, index, job.at, job.at, times, times[-1], job.prompt, 3)
    made.error = "refused" if index % 10 == 9 else ""
    return made


def test_accumulators_are_merged() -> None:
    records, goodput = [record(index) for index in range(50)], Goodput({"ttft": 60.0})
    parts = Accumulator(goodput), Accumulator(goodput)
    for place, each in enumerate(records):
        parts[place % 2].add(each)
    parts[0].merge(parts[1])
    whole = summarize(records, 5.0, goodput).as_json()
    assert parts[0].summary(5.0).as_json() == pytest.approx(whole)
    assert 0 < whole["request_goodput"] < whole["request_throughput"]
