"""The two promises of a comparison, kept with the engine itself, simulated.

On a machine whose speed changes from run to run by 3%, and a server at some 70% of what it can do.
"""

from __future__ import annotations

import random

import pytest
from compare_runs import NoisyMachine, spec

from turnout.lab.compare.comparison import Comparison
from turnout.lab.compare.experiment import Experiment

WORKLOAD = "poisson:rate=20,requests=30,prompt=200,output=40"
NOISE = 0.03


def compared(seed: int, slowdown: float) -> Comparison:
    given = spec(workload=WORKLOAD)
    experiment = Experiment(given, NoisyMachine(given, NOISE, random.Random(seed), slowdown))
    experiment.make(lambda turn: lambda done, total: None)
    return experiment.comparison()


@pytest.mark.slow
def test_an_arm_against_itself_twenty_times_differs_in_at_most_a_tenth_of_the_verdicts() -> None:
    rows = [row for seed in range(20) for row in compared(seed, 0.0).rows["other"]]
    declared = sum(row.direction != "" for row in rows)
    assert declared <= 0.1 * len(rows)


@pytest.mark.parametrize("comparisons", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_a_slowdown_of_a_tenth_is_found_with_five_repeats(comparisons: int) -> None:
    """In nine comparisons of ten, by each metric that it shows in."""
    found = [
        {row.metric.name: row.direction for row in compared(seed, 0.1).rows["other"]}
        for seed in range(comparisons)
    ]
    for name in ("mean_tpot", "median_tpot", "mean_e2el", "median_e2el"):
        assert [verdicts[name] for verdicts in found].count("worse") >= 0.9 * comparisons, name
