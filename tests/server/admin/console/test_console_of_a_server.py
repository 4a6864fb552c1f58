"""The console before a real server under load: what is seen is what happens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tiny_server import serving

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect

CRAMPED = ("--kv-memory", "8MiB", "--max-model-len", "512", "--max-num-seqs", "16")
"""Room for two long requests: more of them at once, and some are preempted."""


@pytest.mark.slow
def test_requests_are_seen_to_run_to_be_preempted_and_to_end_and_a_policy_to_say_why(open_page) -> None:
    with serving(*CRAMPED) as server, ThreadPoolExecutor(8) as pool:
        page = open_page(f"{server.url}/console", bears="ERR_")  # it ends before the page
        expect(page.locator("#summary")).to_contain_text("live")
        body = {"prompt": "def add(a, b):\n" * 8, "max_tokens": 300, "ignore_eos": True}
        bodies = [{**body, "user": f"team-{number % 2}"} for number in range(8)]
        url = f"{server.url}/v1/completions"
        asked = [pool.submit(httpx.post, url, json=body, timeout=120) for body in bodies]
        page.get_by_role("tab", name="Policies").click()
        page.locator("#scheduler-name").fill("sjf")
        page.get_by_role("button", name="Apply").click()
        expect(page.locator("#summary")).to_contain_text("sjf")
        assert all(answer.result().status_code == 200 for answer in asked)
        page.get_by_role("tab", name="Timeline").click()
        page.locator("#window").select_option("900")
        page.get_by_role("button", name="As a table").click()
        expect(page.get_by_role("row", name="ended: length")).to_have_count(8)
        cells = page.locator("#panel-timeline tbody tr").evaluate_all(
            "rows => rows.map(row => [row.cells[1].textContent, Number(row.cells[7].textContent)])"
        )
        assert {client for client, _ in cells} == {"team-0", "team-1"}
        assert sum(times for _, times in cells) > 0
