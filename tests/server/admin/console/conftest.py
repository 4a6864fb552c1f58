"""Chromium, driven by Playwright, for tests that look at the console as its readers do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from made_up_server import Feed, MadeUpServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--js-flags=--expose-gc",
    "--enable-precise-memory-info",
]

Serve = Callable[..., MadeUpServer]
Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a module: while it runs, its thread has an event loop that other tests could not bear."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(
            f"no browser: none of {', '.join(NAMES)} is on the PATH; `make browser` installs Chromium"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def serve(feed: Feed, **given: object) -> MadeUpServer:
            return stack.enter_context(MadeUpServer(feed, **given).running())

        yield serve


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens pages, each in a context of its own. Whatever a page complains of fails the test, unless `bears`
    says that it may: a script's error, a violation of the content security policy, a failed request."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def open_page(url: str, *, bears: str = "\0", **context: object) -> Page:
            opened = browser.new_context(viewport={"width": 1280, "height": 800}, **context)
            stack.callback(opened.close)
            page = opened.new_page()
            page.set_default_timeout(20_000)

            def heard(message: ConsoleMessage) -> None:
                if message.type in ("error", "warning") and bears not in message.text:
                    complaints.append(message.text)

            page.on("console", heard)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(url)
            return page

        yield open_page
    assert not complaints
