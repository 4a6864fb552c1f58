"""Tests whether intervals hold the truth as often as they claim: tables of docs/explanation/statistics.md.

Ratios are drawn whose truth is known, and each kind of 95% interval is made of a few of them, many times. Of
those of a live test it is asked how often they leave the truth out at any of many looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

import click
import numpy as np
import numpy.typing as npt

from turnout.lab.ab.sequential import reach
from turnout.lab.compare.statistics.t_distribution import t_quantile
from turnout.lab.results.markdown import markdown_table, write_marked

Values = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]
Interval = Callable[[Values, np.random.Generator], tuple[float, float]]

CASES = 1500
RESAMPLES = 1000
REPEATS = (5, 20)
LOOKS = 300
NORMAL = NormalDist()


def student(values: Values, rng: np.random.Generator) -> tuple[float, float]:
    wide = t_quantile(0.05, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return values.mean() - wide, values.mean() + wide


def percentile(values: Values, rng: np.random.Generator) -> tuple[float, float]:
    low, high = np.quantile(_resampled(values, rng), (0.025, 0.975))
    return low, high


def bca(values: Values, rng: np.random.Generator) -> tuple[float, float]:
    """Bias-corrected and accelerated (Efron 1987)."""
    means = _resampled(values, rng)
    below = np.clip((means < values.mean()).mean(), 1 / RESAMPLES, 1 - 1 / RESAMPLES)
    bias = NORMAL.inv_cdf(float(below))
    left_out = (values.sum() - values) / (len(values) - 1)
    away = left_out.mean() - left_out
    acceleration = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    ends = [bias + NORMAL.inv_cdf(share) for share in (0.025, 0.975)]
    shares = [NORMAL.cdf(bias + end / (1 - acceleration * end)) for end in ends]
    low, high = np.quantile(means, shares)
    return low, high


def _resampled(values: Values, rng: np.random.Generator) -> Values:
    means: Values = values[rng.integers(0, len(values), (RESAMPLES, len(values)))].mean(axis=1)
    return means


def normal(rng: np.random.Generator, repeats: int) -> Values:
    return rng.normal(size=repeats)


def tails(rng: np.random.Generator, repeats: int) -> Values:
    return rng.standard_t(3, repeats)


def p99(rng: np.random.Generator, repeats: int) -> Values:
    """Ratios of two arms' p99 over 200 requests, lognormal, that share most of what they differ in."""
    work = rng.lognormal(0, 1, (repeats, 1, 200))
    of = np.percentile(work * rng.lognormal(0, 0.3, (repeats, 2, 200)), 99, axis=2)
    return np.log(of[:, 1] / of[:, 0])


def skewed(rng: np.random.Generator, repeats: int) -> Values:
    """As one-sided as a queue's length: worse than a ratio of two."""
    return rng.exponential(size=repeats) - 1


INTERVALS: dict[str, Interval] = {
    "Student's t": student,
    "bootstrap, percentile": percentile,
    "bootstrap, BCa": bca,
}
DRAWS: dict[str, Draw] = {
    "normal": normal,
    "heavy tails (t with 3 degrees)": tails,
    "ratio of two p99": p99,
    "one-sided (exponential)": skewed,
}


def held(interval: Interval, draw: Draw, repeats: int) -> float:
    rng = np.random.default_rng(0)
    ends = [interval(draw(rng, repeats), rng) for _ in range(CASES)]
    return sum(low <= 0 <= high for low, high in ends) / CASES


def table() -> str:
    rows = []
    for name, draw in DRAWS.items():
        for repeats in REPEATS:
            shares = [f"{100 * held(interval, draw, repeats):.0f}%" for interval in INTERVALS.values()]
            rows.append((name, str(repeats), *shares))
    return markdown_table(("the logarithm of the ratio is", "repeats", *INTERVALS), rows)


def ever_wrong(reaches: Values, draw: Draw) -> float:
    """Share of cases in which 0, the truth, is ever beyond the reach; `reaches`: from two values on."""
    rng = np.random.default_rng(0)
    return float(np.mean([(_distance(draw(rng, LOOKS)) > reaches).any() for _ in range(CASES)]))


def _distance(values: Values) -> Values:
    """Of the mean from 0 in standard errors, after each value from the second on."""
    n = np.arange(2, len(values) + 1)
    means = np.cumsum(values)[1:] / n
    variances = (np.cumsum(values**2)[1:] - n * means**2) / (n - 1)
    distances: Values = np.abs(means) * np.sqrt(n / variances)
    return distances


def looks_table() -> str:
    student = np.array([t_quantile(0.05, n - 1) for n in range(2, LOOKS + 1)])
    live = np.array([reach(0.05, n) for n in range(2, LOOKS + 1)])
    rows = []
    for name, draw in DRAWS.items():
        shares = [f"{100 * ever_wrong(reaches, draw):.0f}%" for reaches in (live, student)]
        rows.append((name, *shares))
    return markdown_table(("the logarithm of the ratio is", "live test", "Student's t"), rows)


@click.command()
@click.option(
    "--doc",
    type=click.Path(path_type=Path),
    default=Path("docs/explanation/statistics.md"),
    show_default=True,
)
def main(doc: Path) -> None:
    write_marked(doc, "intervals", table())
    write_marked(doc, "looks", looks_table())


if __name__ == "__main__":
    main()
