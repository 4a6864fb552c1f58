"""The board of KV memory."""

from __future__ import annotations

from turnout.scripts.boards.board import Board, Panel, Row
from turnout.scripts.boards.panels import REPLICA, one
from turnout.scripts.boards.queries import Query, metric, named, over, selected, share, value

__all__ = ["memory"]

GROUP = ("model_name", "group", "window")
STATES = {
    "held": "held",
    "computed": "held and computed",
    "shared": "held by several",
    "cached": "free and cached",
    "pinned": "pinned",
    "capacity": "pool",
}


def memory() -> Board:
    groups = [
        one("kv_cache_group_held_tokens", "Held, by group", by=GROUP, width=12),
        one("kv_cache_group_cached_tokens", "Cached, by group", by=GROUP, width=12),
    ]
    return Board(
        "turnout-memory",
        "Turnout / Memory",
        "KV memory: who holds it, what is cached, what is swapped out.",
        [
            Row("The pool", _pool()),
            Row("Prefixes", _prefixes()),
            Row("Preemption and swap", _swap()),
            Row("Groups of layers", groups),
        ],
    )


def _pool() -> list[Panel]:
    positions = [value(f"kv_cache_{state}_tokens", by=[], word=word) for state, word in STATES.items()]
    free = share(value("kv_cache_free_tokens", by=[]), value("kv_cache_capacity_tokens", by=[]), word="free")
    size = [
        Query(f"{_at(f'kv_cache_{state}_tokens')} * {_at('kv_cache_bytes_per_token')}", named(REPLICA, word))
        for state, word in (("held", "held"), ("capacity", "pool"))
    ]
    help = metric("kv_cache_free_tokens").help
    return [
        one("kv_cache_usage_perc", "In use", by=REPLICA, how="max"),
        Panel("Token positions", positions, "short", "A position may be in several of these."),
        Panel("Bytes", size, "bytes", "Positions by the bytes that each takes."),
        one("kv_cache_waste_ratio", "Held and not computed", by=REPLICA, how="max"),
        Panel("Free", [free], "percentunit", help, most=1.0),
        one("kv_cache_passed_tokens", "Passed by windows"),
    ]


def _prefixes() -> list[Panel]:
    hits, lookups = value("prefix_cache_hits_total"), value("prefix_cache_queries_total")
    both = [
        value("prefix_cache_queries_total", word="looked up"),
        value("prefix_cache_hits_total", word="found"),
    ]
    found = "Share of the prompt tokens looked up that were found."
    return [
        Panel("Prompt tokens found in the cache", [share(hits, lookups)], "percentunit", found, most=1.0),
        Panel("Prompt tokens per second", both, "short", "Those looked up in the prefix cache, and found."),
        one("kv_cache_evicted_tokens_total", "Evicted tokens per second"),
    ]


def _swap() -> list[Panel]:
    swap = [value("kv_cache_swapped_tokens", word="in use"), value("kv_cache_swap_tokens", word="in all")]
    return [
        one("num_preemptions_total", "Preemptions per second"),
        one("num_swap_outs_total", "Swapped out, per second"),
        Panel("Swap memory", swap, "short", metric("kv_cache_swap_tokens").help),
    ]


def _at(name: str) -> str:
    return over(REPLICA, selected(metric(name)), "max")
