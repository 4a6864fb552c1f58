"""Measures the console in Chromium, before a real server with some load: first paint, share of a core, heap.

The page is loaded several times, then it stays open for --minutes while requests come, and each panel is in
front in turn. Once a minute, garbage is collected, and what the heap keeps is printed, beside the server's
memory. Before that come --first short requests, more than the page keeps, so that it does not grow by what it
is to keep. Afterwards: by how much the heap grew from the second minute on, and what the page complained of.
Needs `.[dev]` and a Chromium (`make browser`).
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event

import click
import httpx
import psutil
from playwright.sync_api import CDPSession, ConsoleMessage, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))  # bench's own modules

from peers.server import Server, free_port

PANELS = ("timeline", "memory", "decisions", "policies", "playground", "figures")
SECONDS_EACH = 20
LOADS = 7
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
CLIENTS = ({"prompt": 80, "tokens": 40, "rest": 2.0},) * 3 + ({"prompt": 1000, "tokens": 40, "rest": 8.0},)
"""Each asks, rests for so many seconds, and asks again: a machine that is busy meanwhile slows them down."""


@contextmanager
def load(port: int, model: str) -> Iterator[None]:
    """Sends two kinds of requests meanwhile."""
    ends = Event()

    def ask(number: int, prompt: int, tokens: int, rest: float) -> None:
        rng = Random(number)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
            while not ends.wait(rest * rng.uniform(0.5, 1.5)):
                body = {"model": model, "user": f"client-{number}", "max_tokens": tokens, "ignore_eos": True}
                body["prompt"] = [rng.randrange(5, 900) for _ in range(prompt)]
                client.post("/v1/completions", json=body).raise_for_status()

    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(ask, number, **each) for number, each in enumerate(CLIENTS)]  # type: ignore[arg-type]
        try:
            yield
        finally:
            ends.set()
    for each in asked:
        each.result()


def fill(port: int, model: str, requests: int) -> None:
    """Sends short requests, several at a time."""
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client,
        ThreadPoolExecutor(16) as pool,
    ):

        def ask(number: int) -> None:
            body = {"model": model, "prompt": [5 + number % 800] * 8, "max_tokens": 2, "ignore_eos": True}
            client.post("/v1/completions", json=body).raise_for_status()

        list(pool.map(ask, range(requests)))


class Watched:
    """A page, what it complains of, and what it takes."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("requestfailed", lambda request: self._failed(request.url))
        self._devtools: CDPSession = page.context.new_cdp_session(page)
        self._devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def _heard(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)

    def _failed(self, url: str) -> None:
        if not url.endswith("/admin/live"):  # left with the page, when that is loaded again
            self.complaints.append(f"{url} failed")

    def first_paint(self, url: str) -> float:
        self.page.goto("about:blank")
        self.page.goto(url)
        self.page.wait_for_function(PAINT)
        return float(self.page.evaluate(PAINT))

    def heap(self) -> float:
        """Bytes that are left after a collection."""
        for _ in range(3):
            self._devtools.send("HeapProfiler.collectGarbage")
        return float(self._devtools.send("Runtime.getHeapUsage")["usedSize"])

    def busy(self) -> float:
        """Seconds of the page's thread."""
        found = self._devtools.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))


def watch(watched: Watched, minutes: int, server: psutil.Process) -> list[float]:
    """The heap after each minute, in bytes."""
    heaps = []
    for minute in range(1, minutes + 1):
        before = watched.busy()
        for second in range(60):
            if second % SECONDS_EACH == 0:
                shown = PANELS[(minute * 60 + second) // SECONDS_EACH % len(PANELS)]
                watched.page.locator(f"#tab-{shown}").click()
            watched.page.wait_for_timeout(1000)
        share = (watched.busy() - before) / 60
        heaps.append(watched.heap())
        told = f"{heaps[-1] / 1e6:.2f} MB of heap, {share:.1%} of a core"
        click.echo(f"minute {minute}: {told}; server {server.memory_info().rss / 1e6:.0f} MB")
    return heaps


@click.command(help=__doc__)
@click.option("--minutes", default=30, show_default=True)
@click.option("--first", default=5500, show_default=True, help="Short requests before the first minute.")
@click.option("--model", default="turnout-tiny", show_default=True, help="A folder, or an embedded model.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(minutes: int, first: int, model: str, flags: tuple[str, ...]) -> None:
    """Print the figures. FLAGS go to `turnout serve`."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise click.ClickException("no Chromium is on the PATH; `make browser` installs it")
    with TemporaryDirectory() as folder, ExitStack() as stack:
        command = [
            sys.executable,
            "-m",
            "turnout",
            "serve",
            model,
            "--port",
            str(port := free_port()),
            *flags,
        ]
        server = Server("turnout", command, {}, Path(folder) / "server.log", port)
        stack.callback(server.stop)
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        stack.callback(browser.close)
        watched = Watched(browser.new_page(viewport={"width": 1280, "height": 800}))
        watched.page.set_default_timeout(600_000)
        url = f"http://127.0.0.1:{port}/console"
        paints = [watched.first_paint(url) for _ in range(LOADS)]
        click.echo(f"first paint {statistics.median(paints):.0f} ms, {max(paints):.0f} at most")
        fill(port, server.model, first if minutes else 0)
        stack.enter_context(load(port, server.model))
        heaps = watch(watched, minutes, psutil.Process(server.pid))
    if minutes > 2:
        grown, most = heaps[-1] / heaps[1] - 1, max(heaps) / 1e6
        click.echo(f"the heap grew by {grown:+.1%} since the second minute, {most:.2f} MB at most")
    click.echo("\n".join(watched.complaints) or "the page complained of nothing")


if __name__ == "__main__":
    main()
