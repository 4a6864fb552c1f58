"""Figures with vLLM's names and meaning."""

from __future__ import annotations

import random

import numpy as np
import pytest

from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job
from turnout.lab.results.distribution import Distribution
from turnout.lab.results.goodput import Goodput
from turnout.lab.results.record import Record
from turnout.lab.results.summary import Accumulator, summarize


def record(sent: float, *token_times: float, prompt: int = 10, error: str = "") -> Record:
    times = list(token_times)
    return Record(
        Job(0.0, prompt, len(times)),
        0,
        due=sent,
        sent=sent,
        token_times=times,
        finished=times[-1] if times else sent,
        prompt_tokens=prompt,
        output_tokens=len(times),
        error=error,
    )


THREE = [record(0.0, 1.0, 1.5, 2.0), record(1.0, 1.1), record(2.0, error="refused")]


def test_totals_are_of_requests_that_did_not_fail() -> None:
    figures = summarize(THREE, 4.0).as_json()
    assert (figures["completed"], figures["failed"]) == (2, 1)
    assert (figures["total_input_tokens"], figures["total_output_tokens"]) == (20, 4)
    assert figures["request_throughput"] == 0.5
    assert figures["output_throughput"] == 1.0
    assert figures["total_token_throughput"] == 6.0
    assert figures["request_goodput"] is None


def test_latencies_are_milliseconds() -> None:
    figures = summarize(THREE, 4.0).as_json()
    assert figures["mean_ttft_ms"] == pytest.approx((1000 + 100) / 2)
    assert figures["median_e2el_ms"] == pytest.approx((2000 + 100) / 2)
    assert figures["p99_itl_ms"] == pytest.approx(500)


def test_tpot_leaves_out_the_first_token_and_requests_of_one() -> None:
    summary = summarize(THREE, 4.0)
    assert summary.latencies["tpot"].mean == pytest.approx(500)
    assert summary.latencies["tpot"].count == 1


def test_itl_is_of_messages() -> None:
    """Three tokens in two messages: one gap."""
    assert summarize([record(0.0, 1.0, 1.0, 1.6)], 2.0).latencies["itl"].count == 1


def test_percentiles_are_named_as_given() -> None:
    figures = summarize(THREE, 4.0, percentiles=[50, 99.9]).as_json()
    assert figures["p50_ttft_ms"] == figures["median_ttft_ms"]
    assert "p99.9_ttft_ms" in figures and "p99_ttft_ms" not in figures


def test_the_names_are_vllms() -> None:
    latencies = ("ttft", "tpot", "itl", "e2el")
    assert set(summarize(THREE, 4.0, percentiles=[99]).as_json()) == {
        "duration",
        "completed",
        "failed",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "request_goodput",
        "output_throughput",
        "total_token_throughput",
        *(f"{figure}_{name}_ms" for figure in ("mean", "median", "std", "p99") for name in latencies),
    }


def test_nothing_at_all_is_zeros() -> None:
    assert set(summarize([], 0.0).as_json().values()) == {0, None}


# ------------------------------------------------------------------ goodput


def test_good_requests_keep_every_limit() -> None:
    records = [record(0.0, 0.1, 0.2), record(0.0, 0.1, 0.9), record(0.0, 0.9, 1.0), record(0.0, error="x")]
    assert summarize(records, 2.0, Goodput.parse("ttft:200,tpot:150")).request_goodput == 0.5
    assert summarize(records, 2.0, Goodput.parse("ttft:200")).request_goodput == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tfft:200", "unknown metric 'tfft'; known: ttft, tpot, e2el; did you mean 'ttft'"),
        ("ttft", "must be a number of milliseconds above 0, not ''"),
        ("ttft:200,tpot:50,ttft:100", "ttft is limited twice"),
        ("ttft:-1", "must be a number of milliseconds above 0, not '-1'"),
    ],
)
def test_a_wrong_goodput_is_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Goodput.parse(text)


# ------------------------------------------------------------------ very many


def test_beyond_so_many_values_percentiles_are_within_a_thousandth() -> None:
    rng = random.Random(1)
    values = [rng.lognormvariate(-3, 2) for _ in range(20_000)]
    few = Distribution(exact=1000)
    for start in range(0, len(values), 300):
        few.add(values[start : start + 300])
    assert few.count == len(values)
    assert few.mean == pytest.approx(np.mean(values))
    assert few.std == pytest.approx(np.std(values))
    ranks = [1, 50, 90, 99, 99.9]
    assert few.percentiles(ranks) == pytest.approx(list(np.percentile(values, ranks)), rel=0.003)
    assert len(few._values) <= 1000


def test_zeros_stay_zeros() -> None:
    values = Distribution(exact=2)
    values.add([0.0, 0.0, 0.0, 1.0])
    assert values.percentiles([50]) == [0.0]


@pytest.mark.parametrize("exact", [10, 1000])
def test_two_halves_are_the_whole(exact: int) -> None:
    values = np.random.default_rng(1).exponential(size=300)
    whole, half, other = Distribution(exact), Distribution(exact), Distribution(exact)
    whole.add(values)
    half.add(values[:100])
    other.add(values[100:])
    half.merge(other)
    assert half.count == whole.count
    assert (half.mean, half.std) == pytest.approx((whole.mean, whole.std))
    assert half.percentiles([50, 99]) == pytest.approx(whole.percentiles([50, 99]))


def test_a_summary_may_be_taken_in_between() -> None:
    accumulator = Accumulator()
    accumulator.add(THREE[0])
    assert accumulator.summary(2.0).completed == 1
    accumulator.add(THREE[1])
    assert accumulator.summary(4.0) == summarize(THREE[:2], 4.0)
