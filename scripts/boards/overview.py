"""The board to look at first: latency, throughput and load."""

from __future__ import annotations

from turnout.scripts.boards.board import Board, Panel, Row
from turnout.scripts.boards.panels import latency, lengths, one
from turnout.scripts.boards.queries import Query, metric, selected, share, value

__all__ = ["overview"]


def overview() -> Board:
    return Board(
        "turnout-overview",
        "Turnout / Overview",
        "Latency, throughput and load of Turnout's servers.",
        [Row("Now", _now()), Row("Latency", _latency()), Row("Throughput", _throughput())],
    )


def _now() -> list[Panel]:
    ended, failed = (
        value("request_success_total", *only, by=[]) for only in ([], ['finished_reason="error"'])
    )
    restarts = f"sum(increase({selected(metric('engine_restarts_total'))}[1h]))"
    usage = value("kv_cache_usage_perc", by=[], how="max", word="fullest")
    errors = share(failed, ended, word="errors")
    shown = [
        ("Running", value("num_requests_running", by=[], word="running"), "short"),
        ("Waiting", value("num_requests_waiting", by=[], word="waiting"), "short"),
        ("Output tokens per second", value("generation_tokens_total", by=[], word="tokens"), "short"),
        ("KV memory in use", usage, "percentunit"),
        ("Choices that failed", errors, "percentunit"),
        ("Engines that died, 1 h", Query(restarts, "restarts"), "short"),
    ]
    return [Panel(title, [query], unit, kind="stat", width=4) for title, query, unit in shown]


def _latency() -> list[Panel]:
    running, waiting = (value(f"num_requests_{state}", word=state) for state in ("running", "waiting"))
    return [
        latency("time_to_first_token_seconds", "Time to first token"),
        latency("inter_token_latency_seconds", "Between tokens"),
        latency("e2e_request_latency_seconds", "Whole request"),
        latency("request_queue_time_seconds", "In the queue"),
        latency("request_prefill_time_seconds", "From admission to the first token"),
        latency("request_decode_time_seconds", "From the first token to the last"),
        latency("request_time_per_output_token_seconds", "Time per output token of a choice"),
        Panel("Requests", [running, waiting], "short", "Requests that hold KV memory, and that wait to."),
        one("kv_cache_usage_perc", "KV memory in use", how="max"),
    ]


def _throughput() -> list[Panel]:
    prompt, output = (
        value(f"{what}_tokens_total", word=word)
        for what, word in (("prompt", "prompt"), ("generation", "output"))
    )
    ended = value("request_success_total", by=["finished_reason"])
    note = "Prompt tokens are counted when the first token comes, output tokens as they come."
    return [
        Panel("Tokens per second", [prompt, output], "short", note),
        Panel("Ended per second", [ended], "short", metric("request_success_total").help, stacked=True),
        one("engine_steps_total", "Steps per second"),
        lengths("request_prompt_tokens", "Prompt lengths"),
        lengths("request_generation_tokens", "Output lengths"),
    ]
