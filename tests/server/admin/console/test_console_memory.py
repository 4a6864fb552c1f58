"""The console's memory panel, before made-up engines: whose each block is, and engines side by side."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from made_up import MadeUp
from made_up_server import still

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect


def ageless(page: Page) -> str:
    """The tooltip without what grows by itself."""
    return re.sub(r"(age|total time)[> ]*[\d.]+ m?s", "", page.get_by_role("tooltip").text_content() or "")


def told_at(page: Page, cell: int) -> str:
    """What the tooltip says of a cell in the first row."""
    canvas = page.locator("canvas.pool")
    canvas.hover(position={"x": 3, "y": 3})
    expect(page.get_by_role("tooltip")).to_be_visible()
    for x in range(3, 1200, 3):
        if cell == 0:
            break
        before = ageless(page)
        canvas.hover(position={"x": x, "y": 3})
        cell -= ageless(page) != before
    return page.get_by_role("tooltip").text_content() or ""


@pytest.mark.slow
def test_a_block_tells_which_request_or_pinned_prefix_it_belongs_to(serve, open_page) -> None:
    engine, now = MadeUp(rate=4.0), time.time()
    steps = engine.run(now - 4.0, 4.0)
    steps[-1]["evicted"] = 32
    event = engine.event(now, steps, first=True)
    page = open_page(f"{serve(still(event)).url}#memory")
    expect(page.locator("#panel-memory")).to_contain_text("evicted in 100 steps")
    pinned = told_at(page, 0)
    assert "pinned prefix" in pinned and "system-prompt" in pinned
    held = told_at(page, 1)
    assert engine.live[0].id in held and engine.live[0].client in held
    page.get_by_role("tab", name="Decisions").click()
    expect(page.locator("#panel-decisions")).to_contain_text("cache evicted")


@pytest.mark.slow
def test_what_is_cached_tells_how_long_and_which_request_had_it_and_host_memory_is_shown(
    serve, open_page
) -> None:
    now = time.time()
    engine = MadeUp(rate=0.0)
    mine = engine.arrive(now - 3.0, client="team-a", prompt=160)
    engine.run(now - 3.0, 1.0)
    before = engine.event(now - 2.0, [], first=True)
    kv = before["engines"][0]["kv"]
    kv |= {"runs": [["held", 10], ["free", 630]], "owners": [[1, 1, 10]], "holders": [mine.id], "pins": []}
    after = {**before, "at": now, "first": False}
    after["engines"] = [
        {**before["engines"][0], "kv": {**kv, "runs": [["cached", 10], ["free", 630]], "owners": []}}
    ]
    page = open_page(f"{serve(still(before, after)).url}#memory")
    expect(page.locator("canvas.pool")).to_be_visible()
    cached = told_at(page, 0)
    assert "age" in cached and "computed by" in cached and f"team-a · {mine.id}" in cached
    page.locator("canvas.swap").hover(position={"x": 3, "y": 3})
    expect(page.get_by_role("tooltip")).to_contain_text("swapped out")
    expect(page.get_by_role("tooltip")).to_contain_text("32 blocks")


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
