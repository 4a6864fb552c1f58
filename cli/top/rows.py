"""What `turnout top` tells of engines and requests: figures, the same on the screen and in JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnout.cli.top.watched import Engine, Watched, WatchedRequest, percentiles

__all__ = ["SORTS", "engine_figures", "request_figures", "requests_shown"]

Figures = dict[str, Any]

_STATES = ("decode", "prefill", "swapped", "preempted", "waiting")

SORTS: Mapping[str, Callable[[Figures], Any]] = {
    "state": lambda row: (_STATES.index(row["state"]), row["place"] or 0, -row["age"]),
    "age": lambda row: -row["age"],
    "tokens": lambda row: -row["output_tokens"],
    "prompt": lambda row: -row["prompt_tokens"],
    "preemptions": lambda row: (-row["preemptions"], -row["age"]),
    "client": lambda row: (row["client"], -row["age"]),
}
"""How requests may be sorted; the first is how they are."""


def engine_figures(watched: Watched, engine: Engine, now: float) -> Figures:
    """Times are in seconds, rates a second; None: not known yet."""
    first, between = percentiles(engine.first_tokens), percentiles(engine.token_times)
    stats = engine.stats
    states = [request.news.state for request in watched.of(engine)]
    return {
        "name": engine.name,
        "state": engine.state,
        "scheduler": engine.scheduler,
        "running": stats.running,
        "waiting": stats.waiting,
        "states": {state: states.count(state) for state in _STATES if state in states},
        "kv_use": engine.kv_use,
        "prefix_hit_rate": engine.kv.hit_rate if engine.kv else None,
        "output_tokens_per_second": engine.rate("output_tokens", now),
        "computed_tokens_per_second": engine.rate("computed_tokens", now),
        "steps_per_second": engine.rate("steps", now),
        "preemptions_per_second": engine.rate("preemptions", now),
        "preemptions": stats.preemptions,
        "policy_faults": stats.policy_faults,
        "ttft_p50": first[0] if first else None,
        "ttft_p95": first[1] if first else None,
        "tpot_p50": between[0] if between else None,
        "tpot_p95": between[1] if between else None,
    }


def request_figures(request: WatchedRequest, now: float) -> Figures:
    news = request.news
    return {
        "id": news.id,
        "client": news.client,
        "engine": request.engine.name,
        "state": news.state,
        "place": request.place if news.state in ("waiting", "preempted", "swapped") else None,
        "age": max(0.0, now - news.arrival),
        "prompt_tokens": news.prompt_tokens,
        "cached_tokens": news.cached_tokens,
        "computed": news.computed,
        "output_tokens": news.output_tokens,
        "max_tokens": news.max_tokens * max(1, news.n),
        "ttft": None if request.first_token is None else max(0.0, request.first_token - news.arrival),
        "preemptions": news.preemptions,
        "why": request.why,
    }


def requests_shown(watched: Watched, now: float, sort: str, chosen: str) -> list[Figures]:
    """The requests of which something contains `chosen`, sorted."""
    rows = [request_figures(request, now) for request in watched.requests.values()]
    if wanted := chosen.casefold():
        rows = [row for row in rows if any(wanted in row[name].casefold() for name in _TEXTS)]
    return sorted(rows, key=SORTS[sort])


_TEXTS = ("id", "client", "engine", "state", "why")
