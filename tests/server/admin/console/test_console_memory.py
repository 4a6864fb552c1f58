"""The console's memory panel, before made-up engines: whose each block is, and engines side by side."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from made_up import MadeUp
from made_up_server import still

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect


def told_at(page: Page, cell: int) -> str:
    """What the tooltip says of a cell in the first row."""
    canvas = page.locator("canvas.pool")
    canvas.hover(position={"x": 3, "y": 3})
    expect(page.get_by_role("tooltip")).to_be_visible()
    for x in range(3, 1200, 3):
        if cell == 0:
            break
        before = page.get_by_role("tooltip").text_content()
        canvas.hover(position={"x": x, "y": 3})
        cell -= page.get_by_role("tooltip").text_content() != before
    return page.get_by_role("tooltip").text_content() or ""


@pytest.mark.slow
def test_a_block_tells_which_request_or_pinned_prefix_it_belongs_to(serve, open_page) -> None:
    engine, now = MadeUp(rate=4.0), time.time()
    steps = engine.run(now - 4.0, 4.0)
    steps[-1]["evicted"] = 32
    event = engine.event(now, steps, first=True)
    page = open_page(f"{serve(still(event)).url}#memory")
    expect(page.locator("#panel-memory")).to_contain_text("of these in the last 100 steps")
    pinned = told_at(page, 0)
    assert "pinned prefix" in pinned and "system-prompt" in pinned
    held = told_at(page, 1)
    assert engine.live[0].id in held and engine.live[0].client in held
    page.get_by_role("tab", name="Decisions").click()
    expect(page.locator("#panel-decisions")).to_contain_text("cache evicted")


@pytest.mark.slow
def test_several_engines_stand_beside_each_other_and_one_is_chosen(serve, open_page) -> None:
    now, events = time.time(), []
    for name, rate in (("0", 2.0), ("1", 9.0)):
        engine = MadeUp(rate=rate, replica=name)
        events.append(engine.event(now, engine.run(now - 5.0, 5.0), first=not events))
    events[0]["engines"] += events.pop()["engines"]
    page = open_page(f"{serve(still(*events)).url}#memory")
    choose = page.locator("#panel-memory").get_by_role("button", name="1", exact=True)
    expect(choose).to_have_attribute("aria-pressed", "false")
    choose.click()
    expect(choose).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#panel-memory select")).to_have_value('["tiny","","1"]')
