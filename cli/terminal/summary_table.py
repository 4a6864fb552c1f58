"""A table of a run's figures, under vLLM's names."""

from __future__ import annotations

from turnout.cli.terminal.figure import NONE
from turnout.cli.terminal.table import aligned, tabular
from turnout.lab.results.summary import LATENCIES, Latency, Summary

__all__ = ["TITLES", "summary_lines"]

TITLES = {
    "completed": "Successful requests",
    "failed": "Failed requests",
    "duration": "Benchmark duration (s)",
    "total_input_tokens": "Total input tokens",
    "total_output_tokens": "Total generated tokens",
    "request_throughput": "Request throughput (req/s)",
    "request_goodput": "Request goodput (req/s)",
    "output_throughput": "Output token throughput (tok/s)",
    "total_token_throughput": "Total token throughput (tok/s)",
}
"""The titles of `Summary`'s fields, in this order."""


def summary_lines(summary: Summary) -> list[str]:
    return [*aligned(_totals(summary)), "", *tabular(_latencies(summary))]


def _totals(summary: Summary) -> list[tuple[str, str]]:
    values = {f"{title}:": getattr(summary, name) for name, title in TITLES.items()}
    return [(title, _number(value)) for title, value in values.items() if value is not None]


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def _latencies(summary: Summary) -> list[list[str]]:
    ranks = next(iter(summary.latencies.values())).percentiles
    header = ["milliseconds", "mean", "median", "std", *(f"p{rank:g}" for rank in ranks)]
    rows = [
        [LATENCIES[name], *(f"{ms:.2f}" if each.count else NONE for ms in _values(each))]
        for name, each in summary.latencies.items()
        if each.count or not summary.completed or summary.total_output_tokens
    ]
    return [header, *rows]


def _values(latency: Latency) -> list[float]:
    return [latency.mean, latency.median, latency.std, *latency.percentiles.values()]
