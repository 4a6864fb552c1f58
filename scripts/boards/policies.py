"""The board of policies: what they decide, and what that costs."""

from __future__ import annotations

from turnout.scripts.boards.board import Board, Panel, Row
from turnout.scripts.boards.panels import latency, one
from turnout.scripts.boards.queries import metric, share, value

__all__ = ["policies"]


def policies() -> Board:
    plugins = [
        one("plugin_counter_total", "Counters of plugins, per second", by=["plugin", "name"], width=12),
        one("plugin_gauge", "Gauges of plugins", by=["plugin", "name"], width=12),
    ]
    return Board(
        "turnout-policies",
        "Turnout / Policies",
        "What the policies decide, and what their decisions cost.",
        [Row("Scheduling", _scheduling()), Row("Plugins", plugins), Row("Speculative decoding", _drafts())],
    )


def _scheduling() -> list[Panel]:
    running, waiting = (value(f"num_requests_{state}", word=state) for state in ("running", "waiting"))
    preempted = [value("num_preemptions_total", word="all"), value("num_swap_outs_total", word="swapped out")]
    computed, prompt, output = (
        value(f"{what}_tokens_total", by=[]) for what in ("computed", "prompt", "generation")
    )
    a_step = share(value("computed_tokens_total"), value("engine_steps_total"))
    again = (
        "Tokens run through the model for each prompt and output token. Above 1: tokens are computed again "
        "after preemptions, or drafts were refused. Below 1: prefixes were cached."
    )
    return [
        Panel("Requests", [running, waiting], "short", "Requests that hold KV memory, and that wait to."),
        Panel("Preemptions per second", preempted, "short", metric("num_preemptions_total").help),
        latency("time_to_first_token_seconds", "Time to first token"),
        Panel("Tokens of a step", [a_step], "short", "Tokens that a step runs through the model."),
        Panel("Computed for each token", [share(computed, prompt, output, word="computed")], "short", again),
        one("policy_slow_orders_total", "Slow orders per second"),
        one("policy_faults_total", "Faults of policies per second"),
    ]


def _drafts() -> list[Panel]:
    accepted, drafted, drafts = (
        value(f"spec_decode_num_{what}_total") for what in ("accepted_tokens", "draft_tokens", "drafts")
    )
    rate = "Share of the draft tokens that the model accepted."
    return [
        Panel("Accepted draft tokens", [share(accepted, drafted)], "percentunit", rate, most=1.0),
        Panel("Draft tokens per second", [drafted], "short", "Tokens that were drafted and verified."),
        Panel("Tokens of a draft", [share(drafted, drafts)], "short", "How long drafts are, on the average."),
    ]
