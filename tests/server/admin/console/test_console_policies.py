"""The console's policies: what is in place."""

from __future__ import annotations

import time

import pytest
from made_up import MadeUp
from made_up_server import Event, still

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect


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
