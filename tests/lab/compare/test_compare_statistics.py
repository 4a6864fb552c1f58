"""What a comparison claims of chance is true: tried out on measurements whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from turnout.lab.compare.statistics.statistics import ALPHA, Difference, differences, repeats_to_see
from turnout.lab.compare.statistics.t_distribution import t_quantile, two_sided_p

METRICS = 12


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (9, 2.2622), (30, 2.0423)],
)
def test_students_t_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(0.05, freedom) == pytest.approx(quantile, abs=1e-4)
    assert two_sided_p(quantile, freedom) == pytest.approx(0.05, abs=1e-5)


def test_a_quantile_far_out_is_found() -> None:
    assert two_sided_p(t_quantile(0.0005, 4), 4) == pytest.approx(0.0005)


def pairs(
    rng: np.random.Generator, repeats: int, *, change: float = 0.0, noise: float = 0.03, shared: float = 0.4
):
    """A metric of two arms: what repeats differ in is large and shared, what runs differ in is small."""
    level = rng.lognormal(5, shared, repeats)
    base = level * rng.lognormal(0, noise, repeats)
    return list(zip(base, level * (1 + change) * rng.lognormal(0, noise, repeats), strict=True))


def only(values: list[tuple[float, float]]) -> Difference:
    return differences({"metric": values})["metric"]


@pytest.mark.parametrize("repeats", [2, 5, *(pytest.param(each, marks=pytest.mark.slow) for each in (3, 10))])
def test_an_interval_of_one_metric_holds_the_truth_in_95_of_100_cases(repeats: int) -> None:
    rng = np.random.default_rng(repeats)
    found = [only(pairs(rng, repeats, change=0.1)) for _ in range(2000)]
    assert np.mean([each.low <= 0.1 <= each.high for each in found]) == pytest.approx(0.95, abs=0.015)


def test_ratios_as_skewed_as_those_of_p99_over_few_requests_hardly_harm_that() -> None:
    rng = np.random.default_rng(0)
    held = []
    for _ in range(600):
        work = rng.lognormal(0, 1, (5, 1, 200))
        p99 = np.percentile(work * rng.lognormal(0, 0.3, (5, 2, 200)), 99, axis=2)
        found = only([(a, b) for a, b in p99])
        held.append(found.low <= 0 <= found.high)
    assert np.mean(held) == pytest.approx(0.95, abs=0.025)


def test_what_the_repeats_differ_in_is_no_noise() -> None:
    """Loads that differ tenfold between repeats hide nothing: both arms had them."""
    rng = np.random.default_rng(0)
    assert only(pairs(rng, 5, change=0.1, noise=0.01, shared=2.0)).declared


def test_where_nothing_differs_hardly_anything_is_declared() -> None:
    """The promise: an arm against itself, 20 times, finds differences in at most 10% of the metrics. It is
    kept by far: all but one comparison in twenty find nothing in any metric."""
    rng = np.random.default_rng(1)
    verdicts = []
    for _ in range(1000):
        found = differences({metric: pairs(rng, 5) for metric in range(METRICS)})
        verdicts.append([each.declared for each in found.values()])
    assert np.mean(verdicts) < 0.02
    assert np.mean(np.any(verdicts, axis=1)) == pytest.approx(ALPHA, abs=0.015)


@pytest.mark.slow
def test_metrics_that_move_together_change_nothing_about_that() -> None:
    rng = np.random.default_rng(2)
    anything = 0
    for _ in range(1000):
        same = pairs(rng, 5)
        found = differences({m: [(a, b * rng.lognormal(0, 0.01)) for a, b in same] for m in range(METRICS)})
        anything += any(each.declared for each in found.values())
    assert anything / 1000 <= ALPHA + 0.015


def test_a_slowdown_of_a_tenth_is_found_with_five_repeats() -> None:
    """Where runs differ by 3% for no reason, and it shows in all metrics."""
    rng = np.random.default_rng(3)
    found = [
        [
            each.declared
            for each in differences({m: pairs(rng, 5, change=0.1) for m in range(METRICS)}).values()
        ]
        for _ in range(300)
    ]
    assert np.mean(found) > 0.9


def test_of_differences_declared_few_are_false() -> None:
    """Half the metrics differ, half do not."""
    rng = np.random.default_rng(4)
    false = []
    for _ in range(500):
        found = differences({m: pairs(rng, 5, change=0.2 * (m % 2)) for m in range(METRICS)})
        declared = [m for m, each in found.items() if each.declared]
        false.append(sum(not m % 2 for m in declared) / max(1, len(declared)))
    assert np.mean(false) < ALPHA


def test_an_interval_excludes_zero_exactly_where_a_difference_is_declared() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        for each in differences({m: pairs(rng, 4, change=0.03 * m) for m in range(5)}).values():
            assert each.declared == (not each.low <= 0 <= each.high)


def test_the_number_of_repeats_that_is_named_does_it() -> None:
    """For a difference of 10%, found in 80 of 100 cases."""
    rng = np.random.default_rng(6)
    spread = 0.08
    needed = repeats_to_see(0.1, Difference(0, 0, 0, 1, False, 5, spread, ALPHA))
    assert needed is not None
    logs = rng.normal(math.log(1.1), spread, (1000, needed))
    found = [only([(1.0, math.exp(log)) for log in repeats]).declared for repeats in logs]
    assert np.mean(found) == pytest.approx(0.8, abs=0.05)


def test_hopeless_differences_have_no_number() -> None:
    assert repeats_to_see(0.001, Difference(0, 0, 0, 1, False, 5, 1.0, ALPHA)) is None


def test_one_repeat_declares_nothing() -> None:
    found = only([(100.0, 200.0)])
    assert found.change == pytest.approx(1.0) and not found.declared and math.isnan(found.low)


def test_a_simulation_that_repeats_itself_is_sure() -> None:
    assert only([(100.0, 110.0)] * 3).declared
    assert not only([(100.0, 100.0)] * 3).declared


def test_rounding_is_no_difference() -> None:
    """A mean of 2e-16 whose spread is 0 was declared, as a difference of 0.00%."""
    found = only([(100.0, 100.0 * (1 + 2.3e-16))] * 3)
    assert not found.declared and found.p == 1 and found.low == found.high == found.change == 0


def test_a_repeat_without_a_figure_is_left_out() -> None:
    found = differences({"nothing": [(math.nan, 1.0)] * 3, "some": [(1.0, 2.0), (1.0, math.nan), (1.0, 2.1)]})
    assert found.keys() == {"some"} and found["some"].repeats == 2


# ------------------------------------------------------------------ figures of 0


def test_a_repeat_in_which_both_are_0_is_one_without_a_change() -> None:
    found = only([(1.0, 2.0), (0.0, 0.0), (1.0, 2.0), (0.0, 0.0)])
    assert found.repeats == 4 and found.means is None and found.change == pytest.approx(math.sqrt(2) - 1)
    assert only([(0.0, 0.0)] * 3).change == 0


def test_a_repeat_in_which_one_alone_is_0_counts_as_its_difference() -> None:
    """Three total losses were dropped, and the other repeats declared a gain of 20%."""
    found = only([(1.0, 0.0)] * 3 + [(1.0, 1.2), (1.0, 1.21), (1.0, 1.19)])
    assert found.repeats == 6 and found.means == pytest.approx((1.0, 0.6))
    assert found.change == pytest.approx(-0.4) and not found.declared


def test_a_total_loss_is_found() -> None:
    """An arm with 0 in every repeat was not measured."""
    found = only([(2.0, 0.0), (2.1, 0.0), (1.9, 0.0)])
    assert found.declared and found.change == pytest.approx(-1) == found.low and found.high < -0.8


def test_a_rise_from_0_has_no_share() -> None:
    found = only([(0.0, 2.0), (0.0, 2.1), (0.0, 1.9)])
    assert found.declared and found.change == found.low == found.high == math.inf
    assert found.means == pytest.approx((0.0, 2.0))


def counts(
    rng: np.random.Generator, repeats: int, *, good: float, loss: float = 0.0, shared: float
) -> tuple[list[tuple[float, float]], float]:
    """Good requests a second, of runs of about 20 seconds with `good` of them on average; and the grain."""
    seconds = 20 * rng.lognormal(0, shared, repeats) * rng.lognormal(0, 0.03, (2, repeats))
    rates = rng.binomial(40, np.array([[good], [good * (1 - loss)]]) / 40, (2, repeats)) / seconds
    return list(zip(*rates.tolist(), strict=True)), float(np.mean(1 / seconds))


@pytest.mark.parametrize("shared", [0.0, 0.3])
@pytest.mark.parametrize("good", [0.3, 0.7, 2.0])
def test_equal_arms_with_figures_of_0_rarely_differ(good: float, shared: float) -> None:
    """With two repeats of one good request or none, differences are alike by chance in one case of eight."""
    rng = np.random.default_rng(7)
    for repeats in (2, 3, 5):
        found = []
        for _ in range(400):
            rates, grain = counts(rng, repeats, good=good, shared=shared)
            one = differences({"goodput": rates}, {"goodput": grain})["goodput"]
            assert one.declared == (not one.low <= 0 <= one.high)
            found.append(one.declared)
        assert np.mean(found) <= ALPHA + 0.025, repeats


def test_a_loss_that_leaves_figures_of_0_is_found() -> None:
    rng = np.random.default_rng(8)
    found = []
    for _ in range(200):
        rates, grain = counts(rng, 10, good=4, loss=0.9, shared=0.3)
        one = differences({"goodput": rates}, {"goodput": grain})["goodput"]
        found.append(one.declared and one.change < 0)
    assert np.mean(found) > 0.9
