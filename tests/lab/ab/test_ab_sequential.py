"""What intervals of a test that is watched promise: that they hold at all looks together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from turnout.lab.ab.sequential import blocks_to_see, differences, log_evidence, reach
from turnout.lab.compare.statistics.statistics import ALPHA
from turnout.lab.compare.statistics.t_distribution import t_quantile

LOOKS = 300


def pairs(logs: list[float]) -> list[tuple[float, float]]:
    return [(100.0, 100.0 * math.exp(log)) for log in logs]


def statistics(draws: np.ndarray) -> np.ndarray:
    """|t| after each measurement from the second on; a row for each experiment."""
    n = np.arange(1, draws.shape[1] + 1)
    mean = np.cumsum(draws, axis=1) / n
    variance = (np.cumsum(draws**2, axis=1) - n * mean**2)[:, 1:] / (n[1:] - 1)
    return np.abs(mean[:, 1:]) * np.sqrt(n[1:] / variance)


@pytest.mark.parametrize("kind", ["normal", "heavy tails"])
def test_who_looks_at_every_block_is_rarely_deceived(kind: str) -> None:
    """2,000 tests of an arm against itself, watched for 300 blocks each."""
    random = np.random.default_rng(7)
    shape = (2000, LOOKS)
    draws = random.standard_normal(shape) if kind == "normal" else random.standard_t(3, shape)
    limits = np.array([reach(ALPHA, n) for n in range(2, LOOKS + 1)])
    deceived = (statistics(draws) > limits).any(axis=1).mean()
    assert deceived < 0.04


def test_the_interval_of_a_comparison_would_deceive() -> None:
    """Why those of `turnout compare`, made for a number of repeats that is settled before, do not do here."""
    draws = np.random.default_rng(7).standard_normal((500, LOOKS))
    limits = np.array([t_quantile(ALPHA, n - 1) for n in range(2, LOOKS + 1)])
    assert (statistics(draws) > limits).any(axis=1).mean() > 0.4


def test_a_real_difference_is_found() -> None:
    """Of 10%, where blocks differ by 10%: within 40 blocks, among ten metrics that do not differ."""
    random = np.random.default_rng(3)
    found = 0
    for _ in range(50):
        same = {f"m{number}": pairs(random.normal(0, 0.1, 40).tolist()) for number in range(10)}
        found += differences(same | {"real": pairs(random.normal(math.log(1.1), 0.1, 40).tolist())})[
            "real"
        ].declared
    assert found > 40


def test_many_metrics_are_allowed_for() -> None:
    """Nothing differs: anything at all is declared in few of 300 tests, looked at after each of 40 blocks."""
    random = np.random.default_rng(5)
    wrong = 0
    for _ in range(300):
        logs = random.normal(0, 0.2, (12, 40))
        wrong += any(
            each.declared
            for n in range(5, 41, 5)
            for each in differences({m: pairs(logs[m, :n].tolist()) for m in range(12)}).values()
        )
    assert wrong <= 15


def test_an_interval_excludes_0_exactly_where_a_difference_is_declared() -> None:
    random = np.random.default_rng(11)
    for _ in range(100):
        effects = random.choice([0.0, 0.05, 0.3], 6)
        found = differences({m: pairs(random.normal(e, 0.1, 12).tolist()) for m, e in enumerate(effects)})
        for each in found.values():
            assert each.declared == (each.low > 0 or each.high < 0)
            assert each.low <= each.change <= each.high


def test_the_reach_is_where_the_evidence_is_enough() -> None:
    for n in (6, 10, 100, 5000):
        for alpha in (0.05, 0.005):
            if math.isfinite(limit := reach(alpha, n)):
                assert log_evidence(limit, n) == pytest.approx(-math.log(alpha))
    assert math.isinf(reach(0.05, 4)), "four blocks can never say so much"


def test_few_measurements_say_little() -> None:
    assert differences({"m": []}) == {}
    (one,) = differences({"m": pairs([0.5])}).values()
    assert (one.repeats, one.declared, one.p) == (1, False, 1.0) and math.isnan(one.low)
    (two,) = differences({"m": pairs([0.5, 0.6])}).values()
    assert (two.declared, two.low, two.high) == (False, -1.0, math.inf)
    assert differences({"m": [(0.0, 1.0), (1.0, 0.0)]}) == {}, "no ratio"


def test_blocks_are_counted_out() -> None:
    (difference,) = differences({"m": pairs(np.random.default_rng(0).normal(0, 0.1, 30).tolist())}).values()
    needed = blocks_to_see(0.05, difference)
    assert needed is not None and 30 < needed < 100
    assert blocks_to_see(0.0001, difference) is None
