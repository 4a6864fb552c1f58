"""What a reader is told of a difference."""

from __future__ import annotations

import math

from turnout.lab.compare.statistics.metrics import Metric
from turnout.lab.compare.statistics.statistics import Difference
from turnout.lab.compare.statistics.verdicts import amount, change, percent, verdict, within

TTFT = Metric("p99_ttft", "p99 TTFT", "ms", False)
THROUGHPUT = Metric("output_throughput", "output throughput", "tok/s", True)


def difference(middle: float, low: float, high: float, **given: object) -> Difference:
    declared = not low <= 0 <= high
    values = {"p": 0.01, "declared": declared, "repeats": 5, "spread": 0.05, "alpha": 0.05, **given}
    return Difference(change=middle, low=low, high=high, **values)


def test_a_declared_difference_says_how_large_it_is_and_whether_that_is_good() -> None:
    told = verdict("ljf", TTFT, difference(0.31, 0.24, 0.39), 0.02)
    assert told == "ljf raises p99 TTFT by 31% [24%, 39%]: worse"
    told = verdict("ljf", THROUGHPUT, difference(0.31, 0.24, 0.39), 0.02)
    assert told == "ljf raises output throughput by 31% [24%, 39%]: better"


def test_a_fall_is_told_from_its_smaller_end_to_its_larger() -> None:
    told = verdict("sjf", TTFT, difference(-0.123, -0.151, -0.08), 0.02)
    assert told == "sjf lowers p99 TTFT by 12% [8%, 15%]: better"


def test_small_ones_have_a_decimal() -> None:
    assert within(difference(0.002, -0.011, 0.015)) == "[-1.1%, +1.5%]"
    assert percent(0.1) == "+10%" and percent(-0.02) == "-2.0%"


def test_figures_have_no_digits_that_mean_nothing() -> None:
    assert [amount(value) for value in (0.0, 56.784, 1234.5, 1e300, math.nan)] == [
        "0",
        "56.78",
        "1,234",
        "1e+300",
        "–",
    ]


def test_intervals_of_next_to_no_information_have_few_digits() -> None:
    assert within(difference(0.1, -0.99999, 1e12)) == "[-100%, over +9999%]"


def test_no_difference_shown_says_how_many_repeats_would_show_what_matters() -> None:
    told = verdict("b", TTFT, difference(0.01, -0.05, 0.07, spread=0.028), 0.02)
    assert told == "no difference shown: needs about 13 more repeats to see 2%"


def test_where_no_number_of_repeats_helps_that_is_said() -> None:
    assert "500 repeats would not do to see 2%" in verdict(
        "b", TTFT, difference(0, -0.9, 9.0, spread=1.0), 0.02
    )


def test_an_interval_within_what_matters_is_a_verdict_too() -> None:
    told = verdict("b", TTFT, difference(0.003, -0.008, 0.014), 0.02)
    assert told == "no difference of 2% or more"


def test_a_change_that_is_no_ratio_says_of_what_it_is_a_share() -> None:
    lost = difference(-0.4, -0.6, -0.2, means=(1.0, 0.6))
    assert within(lost) == "[-60%, -20%] of the mean"
    assert verdict("b", THROUGHPUT, lost, 0.02) == (
        "b lowers output throughput by 40% [20%, 60%] of the mean: worse"
    )
    vague = difference(-0.1, -0.3, 0.1, spread=0.06, means=(1.0, 0.9))
    assert verdict("b", THROUGHPUT, vague, 0.02).startswith("no difference shown: needs about ")


def test_a_rise_from_0_is_told_in_words() -> None:
    risen = difference(math.inf, math.inf, math.inf, means=(0.0, 0.41))
    assert (change(risen), within(risen)) == ("from 0", "")
    assert verdict("b", THROUGHPUT, risen, 0.02) == "b raises output throughput from 0 to 0.41: better"
    vague = difference(math.inf, -math.inf, math.inf, means=(0.0, 0.41))
    assert verdict("b", THROUGHPUT, vague, 0.02) == ("no difference shown: a mean of 0 has no share to see")


def test_one_repeat_tells_nothing() -> None:
    one = difference(0.5, math.nan, math.nan, declared=False, repeats=1, spread=math.nan)
    assert verdict("b", TTFT, one, 0.02) == "one repeat cannot tell: give --repeat 2 or more"
    assert within(one) == ""
