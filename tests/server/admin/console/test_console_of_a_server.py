"""The console before a real server under load: what is seen is what happens."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from console_page import PANELS, rows, tab
from tiny_server import TinyServer, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect

pytestmark = pytest.mark.slow

CRAMPED = ("--kv-memory", "8MiB", "--max-model-len", "512", "--max-num-seqs", "16")
"""Room for two long requests: more of them at once, and some are preempted."""
LEAVES = "ERR_"
"""The server ends before the page."""
MARKUP = "<img src=x onerror=document.title='taken'>"


@contextmanager
def asked(server: TinyServer, number: int, **body: Any) -> Iterator[list[Future[httpx.Response]]]:
    """Requests for long answers, all at once; each must be answered in full."""
    body = {"prompt": "def add(a, b):\n" * 8, "max_tokens": 300, "ignore_eos": True, **body}
    with ThreadPoolExecutor(number) as pool:
        bodies = [{"user": f"team-{place % 2}", **body} for place in range(number)]
        answers = [pool.submit(server.post, "/v1/completions", each, timeout=120) for each in bodies]
        yield answers
        assert [answer.result().status_code for answer in answers] == [200] * number
        reasons = {answer.result().json()["choices"][0]["finish_reason"] for answer in answers}
        assert reasons == {"length"}, "no stream is lost"


def states(page: Page) -> list[str]:
    return [row[2] for row in rows(page)]


def engines_of(server: TinyServer) -> list[Any]:
    found = server.process.children(recursive=True)
    return [process for process in found if "turnout.server.engine" in " ".join(process.cmdline())]


def test_requests_are_seen_to_run_to_be_preempted_and_to_end_and_a_policy_to_say_why(open_page) -> None:
    with serving(*CRAMPED) as server:
        page = open_page(f"{server.url}/console", bears=LEAVES)
        expect(page.locator("#summary")).to_contain_text("live")
        with asked(server, 8):
            tab(page, "Policies")
            page.locator("#scheduler-name").fill("sjf")
            page.get_by_role("button", name="Apply").click()
            expect(page.locator("#summary")).to_contain_text("sjf")
            expect(page.locator(".policies")).to_contain_text("sjf")
            tab(page, "Timeline")
            page.get_by_role("button", name="As a table").click()
            waits = page.locator("#panel-timeline tbody tr").filter(has_text="preempted")
            expect(waits.first).to_be_visible(timeout=60_000)
        page.locator("#window").select_option("900")
        expect(page.get_by_role("row", name="ended: length")).to_have_count(8)
        cells = [(row[1], int(row[7])) for row in rows(page)]
        assert {client for client, _ in cells} == {"team-0", "team-1"}
        assert sum(times for _, times in cells) > 0


@pytest.mark.parametrize(
    ("flags", "seen"), [((), "resumed after a crash"), (("--replicas", "2"), "moved to another engine")]
)
def test_streams_of_a_killed_engine_are_seen_to_go_on(open_page, flags: tuple[str, ...], seen: str) -> None:
    with serving(*flags) as server:
        page = open_page(f"{server.url}/console", bears=LEAVES)
        expect(page.locator("#summary")).to_contain_text("live")
        with asked(server, 6, max_tokens=1500):
            expect(page.locator("#panel-timeline .told")).to_contain_text("6 live")
            page.wait_for_timeout(600)
            engines_of(server)[0].kill()
            page.get_by_role("button", name="As a table").click()
            went_on = page.locator("#panel-timeline tbody tr").filter(has_text=seen)
            expect(went_on.first).to_be_visible(timeout=60_000)
        page.locator("#window").select_option("900")
        expect(page.get_by_role("row", name="ended: length")).to_have_count(6)


def test_an_arm_is_seen_to_be_promoted(open_page) -> None:
    with serving("--ab", "fast:scheduler=sjf", "--split", "0.5") as server:
        page = open_page(f"{server.url}/console#policies", bears=LEAVES)
        page.on("dialog", lambda dialog: dialog.accept())
        base, fast = page.locator("tr[data-arm=base]"), page.locator("tr[data-arm=fast]")
        expect(base).to_contain_text("serving")
        with asked(server, 12, max_tokens=60):
            fast.get_by_role("button", name="Promote").click()
            expect(base).not_to_contain_text("serving")
        expect(fast).to_contain_text("serving")
        arms = {arm["name"]: arm for arm in httpx.get(f"{server.url}/admin/ab").json()["arms"]}
        assert arms["fast"]["state"] == "serving" != arms["base"]["state"]
        expect(page.locator("#summary")).to_contain_text("sjf")


def test_markup_in_prompts_names_and_answers_is_text_in_every_panel(open_page) -> None:
    with serving() as server:
        page = open_page(f"{server.url}/console#playground", bears="")
        with asked(server, 4, user=MARKUP, prompt=MARKUP * 4, max_tokens=400):
            page.locator("#prompt").fill(f"{MARKUP} <script>document.title = 'taken'</script>")
            page.get_by_role("button", name="Send").click()
            expect(page.locator(".log").first).to_contain_text(MARKUP)
            tab(page, "Policies")
            page.locator("#scheduler-name").fill(MARKUP)
            page.get_by_role("button", name="Apply").click()
            expect(page.locator("#notice")).to_contain_text(MARKUP)
            for panel in PANELS:
                page.locator(f"#tab-{panel}").click()
                page.wait_for_timeout(400)
                assert page.locator("img[src=x], #panels script").count() == 0, panel
        assert any(row[1] == MARKUP for row in rows(page))
        assert page.title() == "Turnout"


def test_without_the_admin_key_nothing_leaves(open_page) -> None:
    with serving("--admin-key", "secret") as server, asked(server, 2, user="team-secret"):
        page = open_page(f"{server.url}/console", bears="")
        expect(page.get_by_role("dialog")).to_be_visible()
        assert "team-secret" not in page.content()
        for path in ("live", "trace?seconds=1", "kv", "replicas", "plugins", "ab"):
            for headers in ({}, {"Authorization": "Bearer guess"}):
                refused = httpx.get(f"{server.url}/admin/{path}", headers=headers)
                assert refused.status_code == 401 and "team-secret" not in refused.text, path
        page.get_by_label("Admin key").last.fill("secret")
        page.keyboard.press("Enter")
        expect(page.locator("#summary")).to_contain_text("live")
        with asked(server, 2, user="team-secret"):  # the first may have ended before anybody watched
            assert any(row[1] == "team-secret" for row in rows(page))


def test_pages_of_other_origins_read_nothing_of_other_clients(open_page) -> None:
    """`localhost` is another origin than `127.0.0.1`, and one that a server without keys answers.

    The page is not the console: its own policy lets it connect to no other origin, whatever a server answers.
    """
    with serving() as server:
        page = open_page(f"{server.url.replace('127.0.0.1', 'localhost')}/version", bears="")
        for path in ("/admin/live", "/admin/trace?seconds=1", "/v1/models", "/console"):
            read = page.evaluate("url => fetch(url).then(() => 'read', () => 'blocked')", server.url + path)
            assert read == ("blocked" if path.startswith("/admin") else "read"), path
            answer = httpx.get(server.url + path, headers={"Origin": "https://evil.example"})
            assert answer.status_code == 403 or path == "/console", path
            assert "access-control-allow-origin" not in answer.headers
