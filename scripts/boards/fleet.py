"""The board of servers, models, replicas and keys."""

from __future__ import annotations

from turnout.scripts.boards.board import Board, Panel, Row
from turnout.scripts.boards.panels import REPLICA, one
from turnout.scripts.boards.queries import Query

__all__ = ["fleet"]

SERVED = ("instance", "model_name")
ENDPOINT = ("model_name", "endpoint")


def fleet() -> Board:
    models = [
        one("model_loaded", "Loaded", by=SERVED),
        one("model_requests_waiting", "Requests that wait for a model", by=SERVED),
        one("model_loads_total", "Loads per second", by=SERVED),
    ]
    pooled = [
        one(f"pooled_{what}_total", f"{what.capitalize()} per second", by=ENDPOINT)
        for what in ("requests", "texts", "tokens")
    ]
    keys = [
        one("key_requests_total", "Requests per second", by=["key"]),
        one("key_refusals_total", "Refused per second", by=["key"]),
        one("key_tokens_total", "Tokens per second", by=["key"]),
    ]
    return Board(
        "turnout-fleet",
        "Turnout / Fleet",
        "Servers, models and replicas side by side.",
        [
            Row("Servers", _servers()),
            Row("Replicas", _replicas()),
            Row("Models on demand", models),
            Row("Embeddings, scores and classes", pooled),
            Row("Keys with a name", keys),
        ],
    )


def _servers() -> list[Panel]:
    up = Query('up{instance=~"$instance", job=~"turnout.*"}', "{{instance}}")
    return [
        Panel("Answers scrapes", [up], "short", "1 while Prometheus reaches the server.", most=1.0),
        one("generation_tokens_total", "Output tokens per second", by=SERVED),
        one("engine_restarts_total", "Engines that died, per second", by=REPLICA),
    ]


def _replicas() -> list[Panel]:
    return [
        one("num_requests_running", "Running", by=REPLICA),
        one("num_requests_waiting", "Waiting", by=REPLICA),
        one("kv_cache_usage_perc", "KV memory in use", by=REPLICA, how="max"),
        one("computed_tokens_total", "Computed tokens per second", by=REPLICA),
        one("engine_steps_total", "Steps per second", by=REPLICA),
        one("num_preemptions_total", "Preemptions per second", by=REPLICA),
        one("prefix_cache_hit_ratio", "Prompt tokens found in the cache", by=REPLICA, how="max"),
    ]
