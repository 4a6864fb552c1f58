"""The board of a live test: its two arms, side by side."""

from __future__ import annotations

from turnout.scripts.boards.board import Board, Panel, Row
from turnout.scripts.boards.panels import ARM, one
from turnout.scripts.boards.queries import mean, metric, quantiles, share, value

__all__ = ["arms"]

LATENCIES = {
    "time_to_first_token_seconds": "Time to first token",
    "inter_token_latency_seconds": "Between tokens",
    "e2e_request_latency_seconds": "Whole request",
}


def arms() -> Board:
    return Board(
        "turnout-ab",
        "Turnout / A/B",
        "The arms of turnout serve --ab, side by side. The verdict is in the console and in GET /admin/ab.",
        [
            Row("Latency", [panel for name in LATENCIES for panel in _latency(name)]),
            Row("Load and outcome", _outcome()),
        ],
    )


def _latency(name: str) -> list[Panel]:
    shown = {
        "median": quantiles(name, 0.5, by=ARM),
        "95th percentile": quantiles(name, 0.95, by=ARM),
        "mean": [mean(name, by=ARM)],
    }
    return [
        Panel(f"{LATENCIES[name]}, {what}", queries, "s", metric(name).help)
        for what, queries in shown.items()
    ]


def _outcome() -> list[Panel]:
    ended = value("request_success_total", by=ARM)
    failed = value("request_success_total", 'finished_reason="error"', by=ARM)
    errors = "Share of the choices that ended with an error."
    return [
        one("generation_tokens_total", "Output tokens per second", by=ARM),
        one("request_success_total", "Ended per second", by=ARM),
        Panel("Choices that failed", [share(failed, ended)], "percentunit", errors, most=1.0),
        one("num_requests_running", "Running", by=ARM),
        one("num_requests_waiting", "Waiting", by=ARM),
        one("kv_cache_usage_perc", "KV memory in use", by=ARM, how="max"),
        one("num_preemptions_total", "Preemptions per second", by=ARM),
        one("computed_tokens_total", "Computed tokens per second", by=ARM),
        one("prefix_cache_hit_ratio", "Prompt tokens found in the cache", by=ARM, how="max"),
    ]
