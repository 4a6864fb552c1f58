"""The console's policies: what is in place, and the server's words in the page's language."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from made_up import MadeUp
from made_up_server import Event, still

from turnout.lab.ab.findings import findings
from turnout.lab.ab.live_trial import METRICS
from turnout.lab.ab.tally import Tally
from turnout.lab.ab.verdicts import live_verdict
from turnout.lab.compare.statistics.statistics import Difference
from turnout.server.fleet import arms, replica
from turnout.server.fleet.models import residence

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect

ARM = {"changes": {}, "share": 0.5, "reason": None, "restarts": 0}
HOUR, DAY = 3600.0, 86400.0


def told() -> Event:
    """What an engine tells at first that has run for a second."""
    engine = MadeUp()
    return engine.event(time.time(), engine.run(time.time() - 1, 1), first=True)


def test_what_is_in_place_follows_a_change_of_the_scheduler(serve, open_page) -> None:
    """Later events name the scheduler alone; the table went on to show the first event's."""
    first = told()
    changed = {"model": "tiny", "replica": "0", "name": "tiny/base/0", "scheduler": "sjf:horizon=5"}
    page = open_page(f"{serve(still(first, {'at': first['at'] + 1, 'engines': [changed]})).url}#policies")
    rows = page.locator(".policies tbody tr")
    expect(rows).to_have_text(
        ["schedulersjf:horizon=5", "kvpaged:block_size=16", "kv_evictionlru", "routerleast_requests"]
    )


def test_states_and_verdicts_are_in_chinese_and_unknown_words_stay(serve, open_page) -> None:
    states = ["serving", "draining", "asleep"]
    verdicts = ["not measured yet", "fast lowers p99 TTFT by 31% [24%, 39%]: better", "none of the known"]
    server = serve(still({**told(), "arms": report(states, verdicts)}))
    server.replica_state = "drained"
    page = open_page(f"{server.url}#policies", locale="zh-CN")
    shown = page.locator("tr[data-arm] td:nth-child(2)")
    expect(shown).to_have_text(["服务中", "正在排空", "asleep"])
    expect(page.locator(".verdicts td:last-child")).to_have_text(
        ["尚未测量", "fast 使 p99 TTFT 降低 31% [24%, 39%]：更好", "none of the known"]
    )
    expect(page.locator("#panel-policies")).to_contain_text("已排空")
    page.locator("#language").select_option("en")
    expect(shown).to_have_text(states)
    expect(page.locator(".verdicts td:last-child")).to_have_text(verdicts)


def test_every_state_and_verdict_of_the_server_has_chinese_words(serve, open_page) -> None:
    page = open_page(serve(still(told())).url, locale="zh-CN")
    kinds = (arms.State, replica.Condition, residence.LoadState)
    states = sorted({state for kind in kinds for state in get_args(kind)})
    found = page.evaluate(
        """async ([states, verdicts]) => {
            const { stateWords, verdictWords } = await import("./console/lib/server_words.js");
            return [states.map(stateWords), verdicts.map(verdictWords)];
        }""",
        [states, every_verdict()],
    )
    assert not set(states) & set(found[0])
    english = re.compile("raises|lowers|differ|block|minute|hour|day|second|pace|better|worse|measured")
    assert not [words for words in found[1] if english.search(words)]


def test_every_finding_of_the_server_is_in_chinese(serve, open_page) -> None:
    tally = Tally()
    tally.completed, tally.failed, tally.latest_error = 3, 2, "it fell\nagain"
    said = findings({"fast": tally}, {"fast": 1_200}, np.linspace(0, 1, 30))
    assert len(said) == 3
    told_of = report(["serving"], ["not measured yet"])
    told_of["comparison"]["findings"] = [*said, "another finding"]
    page = open_page(f"{serve(still({**told(), 'arms': told_of})).url}#policies", locale="zh-CN")
    shown = page.locator("#panel-policies p.bad")
    expect(shown.nth(0)).to_have_text("fast：5 个回答中有 2 个失败，最近一次的原因：it fell again")
    expect(shown.nth(1)).to_contain_text("fast：调度策略有 1,200 次结果无法执行，请求改按到达顺序处理")
    expect(shown.nth(2)).to_contain_text("相邻区组彼此相似（自相关 0.")
    expect(shown.nth(3)).to_have_text("another finding")
    page.locator("#language").select_option("en")
    expect(shown.nth(2)).to_have_text(said[2])


def report(states: list[str], verdicts: list[str]) -> dict[str, Any]:
    row = {"metric": "mean_ttft", "unit": "ms", "base": 812.0, "other": 640.0}
    rows = [{**row, "change": -0.21, "low": -0.3, "high": -0.11, "verdict": verdict} for verdict in verdicts]
    comparison = {"blocks": 12, "findings": [], "differences": {"fast": rows}}
    named = [{**ARM, "name": f"arm-{state}", "state": state} for state in states]
    return {"arms": named, "comparison": comparison}


def every_verdict() -> list[str]:
    """One of each form."""
    one = Difference(0.31, -0.2, 0.9, 0.5, False, 8, 0.3, 0.05)
    found: list[Difference | None] = [
        None,
        replace(one, repeats=1),
        replace(one, low=0.31),
        replace(one, change=0.0, low=0.0, high=0.0),
        replace(one, low=-0.01, high=0.01),
        replace(one, spread=50.0),
        replace(one, low=0.24, high=0.39, declared=True),
        replace(one, change=-0.31, low=-0.39, high=-0.24, declared=True),
    ]
    ways = [(metric, difference) for metric in METRICS for difference in found]
    verdicts = [live_verdict("fast", metric, difference, 0.05, HOUR) for metric, difference in ways]
    paces = (0.001, 60.0, HOUR, DAY, math.nan)
    return verdicts + [live_verdict("fast", METRICS[0], one, 0.05, pace) for pace in paces]
