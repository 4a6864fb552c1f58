"""The console's models: which are loaded, and the buttons that load, unload and pin them."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
from made_up import MadeUp
from made_up_server import Event, still
from tiny_server import serving

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect

pytestmark = pytest.mark.slow


def told() -> Event:
    """What an engine tells at first, that has run for a second."""
    engine = MadeUp()
    return engine.event(time.time(), engine.run(time.time() - 1, 1), first=True)


def row(page: Any, name: str) -> Any:
    return page.locator(f"tr[data-model={name}]")


@pytest.mark.parametrize(
    ("locale", "words"),
    [
        (
            "en-US",
            ("Load", "Unload", "Pin", "Unpin", "unloads in 59.5 s", "tried again in 4.50 s", "loading"),
        ),
        ("zh-CN", ("加载", "卸载", "固定", "取消固定", "59.5 s后卸载", "4.50 s后可重试", "正在加载")),
    ],
)
def test_models_are_loaded_unloaded_and_pinned(serve, open_page, locale: str, words: tuple[str, ...]) -> None:
    load, unload, pin, unpin, idle, again, loading = words
    server = serve(still(told()))
    page = open_page(f"{server.url}#policies", locale=locale)
    page.on("dialog", lambda dialog: dialog.accept())

    def press(name: str, words: str) -> None:
        row(page, name).get_by_role("button", name=words, exact=True).click()

    expect(row(page, "tiny")).to_contain_text(idle)
    press("other", load)
    expect(row(page, "other")).to_contain_text(loading)
    expect(row(page, "other")).to_contain_text("42%")
    server.loaded["other"] = "failed"
    expect(row(page, "other")).to_contain_text("the weights take 2 GiB")
    expect(row(page, "other")).to_contain_text(again)
    press("tiny", pin)
    expect(row(page, "tiny").get_by_role("button", name=unload, exact=True)).to_be_disabled()
    expect(row(page, "tiny")).not_to_contain_text(idle)
    press("tiny", unpin)
    expect(row(page, "tiny")).to_contain_text(idle)
    press("tiny", unload)
    expect(row(page, "tiny")).to_contain_text("unloading" if locale == "en-US" else "正在卸载")
    server.loaded["tiny"] = "unloaded"
    expect(row(page, "tiny").get_by_role("button", name=load, exact=True)).to_be_enabled()
    asked = [(body["action"], body["model"]) for what, body in server.changes if what == "models"]
    assert asked == [("load", "other"), ("pin", "tiny"), ("unpin", "tiny"), ("unload", "tiny")]


def test_a_refusal_is_shown_and_the_keyboard_stays_where_it_is(serve, open_page) -> None:
    server = serve(still(told()))
    page = open_page(f"{server.url}#policies", bears="409")
    page.on("dialog", lambda dialog: dialog.accept())
    button = row(page, "tiny").get_by_role("button", name="Unload", exact=True)
    button.focus()
    server.loaded["other"] = "failed"
    expect(row(page, "other")).to_contain_text("failed")
    expect(button).to_be_focused()
    server.pinned.add("tiny")
    page.keyboard.press("Enter")
    expect(page.locator("#notice")).to_have_text("'tiny' is pinned")


def test_a_server_of_one_model_that_stays_shows_none(serve, open_page) -> None:
    server = serve(still(told()))
    server.loaded = {"tiny": "loaded"}
    server._status = lambda name: {**type(server)._status(server, name), "loads": 0, "unloads_in": None}
    page = open_page(f"{server.url}#policies")
    expect(page.locator("#panel-policies")).to_contain_text("least_requests")
    page.wait_for_timeout(500)
    expect(page.get_by_role("heading", name="Models")).to_be_hidden()


def test_models_of_a_server_come_and_go(open_page) -> None:
    """Before any engine is there, too."""
    flags = ("b=turnout-tiny", "--lazy", "--kv-memory", "64MiB")
    with serving(*flags, model="a=turnout-tiny", generates=False) as server:
        page = open_page(f"{server.url}/console#policies", bears="ERR_")
        page.on("dialog", lambda dialog: dialog.accept())
        expect(row(page, "a")).to_contain_text("unloaded")
        row(page, "a").get_by_role("button", name="Load", exact=True).click()
        expect(row(page, "a").get_by_role("button", name="Unload", exact=True)).to_be_enabled(timeout=60_000)
        expect(page.locator("#panel-policies")).to_contain_text("serving")  # of the model that has engines
        row(page, "b").get_by_role("button", name="Pin", exact=True).click()
        expect(row(page, "b")).to_contain_text("pinned")
        row(page, "a").get_by_role("button", name="Unload", exact=True).click()
        expect(row(page, "a")).to_contain_text("unloaded", timeout=60_000)
        models = httpx.get(f"{server.url}/admin/models").json()["models"]
        assert [(each["state"], each["pinned"]) for each in models] == [
            ("unloaded", False),
            ("unloaded", True),
        ]
