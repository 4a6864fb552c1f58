"""A run's figures for reading, with vLLM's words."""

from __future__ import annotations

from turnout.cli.table import aligned, tabular
from turnout.lab.summary import LATENCIES, Latency, Summary

__all__ = ["summary_lines"]


def summary_lines(summary: Summary) -> list[str]:
    return [*aligned(_totals(summary)), "", *tabular(_latencies(summary))]


def _totals(summary: Summary) -> list[tuple[str, str]]:
    rows = [
        ("Successful requests:", f"{summary.completed:,}"),
        ("Failed requests:", f"{summary.failed:,}"),
        ("Benchmark duration (s):", f"{summary.duration:.2f}"),
        ("Total input tokens:", f"{summary.total_input_tokens:,}"),
        ("Total generated tokens:", f"{summary.total_output_tokens:,}"),
        ("Request throughput (req/s):", f"{summary.request_throughput:.2f}"),
        ("Output token throughput (tok/s):", f"{summary.output_throughput:.2f}"),
        ("Total token throughput (tok/s):", f"{summary.total_token_throughput:.2f}"),
    ]
    if summary.request_goodput is not None:
        rows.insert(6, ("Request goodput (req/s):", f"{summary.request_goodput:.2f}"))
    return rows


def _latencies(summary: Summary) -> list[list[str]]:
    ranks = next(iter(summary.latencies.values())).percentiles
    header = ["milliseconds", "mean", "median", "std", *(f"p{rank:g}" for rank in ranks)]
    rows = [
        [LATENCIES[name], *(f"{ms:.2f}" for ms in _values(each))] for name, each in summary.latencies.items()
    ]
    return [header, *rows]


def _values(latency: Latency) -> list[float]:
    return [latency.mean, latency.median, latency.std, *latency.percentiles.values()]
