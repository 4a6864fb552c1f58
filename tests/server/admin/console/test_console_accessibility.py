"""axe-core finds nothing wrong with any panel, in both languages and both themes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from console_page import PANELS
from made_up import MadeUp
from made_up_server import live, still

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'")
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe is not there: install '.[dev]'"
)

ARM = {"changes": {}, "share": 0.5, "state": "serving", "reason": None, "restarts": 0}
ROW = {"metric": "mean_ttft", "unit": "ms", "base": 812.0, "other": 640.0, "verdict": "better"}
DIFFERENCES = {"fast": [{**ROW, "change": -0.21, "low": -0.3, "high": -0.11}]}
ARMS = {
    "arms": [{**ARM, "name": "base"}, {**ARM, "name": "fast", "changes": {"scheduler": "sjf"}}],
    "comparison": {"blocks": 12, "findings": ["too few blocks"], "differences": DIFFERENCES},
}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_axe_finds_nothing_wrong_with_any_panel(serve, open_page, theme: str, locale: str) -> None:
    now, events = time.time(), []
    for name in ("0", "1"):
        engine = MadeUp(rate=6.0, replica=name, blocks=300)
        events.append(engine.event(now, engine.run(now - 5.0, 5.0), first=not events))
    events[0]["engines"] += events.pop()["engines"]
    events[0]["arms"] = ARMS
    server = serve(still(*events))
    page = open_page(server.url, color_scheme=theme, locale=locale)
    sync_api.expect(page.locator("#summary")).to_contain_text("fcfs")
    found: list[str] = []
    for panel in PANELS:
        page.locator(f"#tab-{panel}").click()
        page.wait_for_timeout(300)
        if panel == "playground":
            page.locator("#prompt").fill("Say hello")
            page.keyboard.press("Control+Enter")
            sync_api.expect(page.locator(".log").first).to_contain_text("Hello")
        found += _violations(page, panel)
        if panel == "timeline":
            page.locator("canvas.bars").press("ArrowDown")
            page.locator("#panel-timeline .bar button").last.click()
            found += _violations(page, "the timeline's table")
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_axe_finds_nothing_wrong_with_the_question_for_the_key(serve, open_page) -> None:
    page = open_page(serve(live(MadeUp(), before=1.0), key="secret").url, bears="401")
    sync_api.expect(page.get_by_role("dialog")).to_be_visible()
    assert not _violations(page, "the question")


def _violations(page: object, where: str) -> list[str]:
    found = axe.Axe().run(page).response["violations"]
    return [f"{where}: {_told(each)}" for each in found]


def _told(violation: dict[str, Any]) -> str:
    nodes = violation["nodes"]
    where = [node["target"] for node in nodes][:5]
    why = nodes[0].get("failureSummary", "")[:300]
    return f"{violation['impact']}, {violation['id']}: {violation['help']}: {where} {why}"
