"""Takes the pictures of the console in docs/images/: of a small server under load, and of simulated runs.

    python scripts/console_pictures.py              # all; or those that are named, such as tutorial-fcfs

Needs `.[dev]` and a Chromium (`make browser`), and a machine with nothing else to do. Look at the pictures
before they are committed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event
from urllib.request import urlopen

import click
import httpx
from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent.parent / "docs" / "images"
TURNOUT = (sys.executable, "-m", "turnout")
PORT = 8437

CRAMPED = (
    f"--port={PORT}",
    "--scheduler=sjf",
    "--kv-memory=32MiB",
    "--preemption=swap",
    "--swap-memory=64MiB",
    "--max-num-seqs=12",
    "--max-num-batched-tokens=48",
)
TEAMS = {
    "team-a": (5, 0, 90, 200),
    "team-b": (4, 256, 150, 120),
    "team-c": (3, 0, 700, 90),
    "team-d": (3, 0, 30, 420),
}
"""Clients of each, who always want something; of their requests: tokens that all share, others, output."""
BEFORE_SECONDS = 30
WINDOWS, LEAST_BARS = ("5", "15", "30", "60"), 45

DOCUMENTS = "burst:requests=4,prompt=3900,output=60,client=document"
CHATS = "poisson:rate=12,requests=60,prompt=120,output=40,client=chat"
SIMULATE = (
    *TURNOUT, "simulate", "--cost-model=a100-70b", "--max-num-batched-tokens=512", "--max-model-len=4096",
    f"--workload={DOCUMENTS} + {CHATS}",
)  # fmt: skip
"""As docs/tutorial/see-a-long-prompt.md has it."""


Take = Callable[..., None]
"""Writes a page's picture under a name; of all that is shown, or of so many pixels from above."""


@contextmanager
def running(*command: str) -> Iterator[None]:
    """A server of ours, meanwhile."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urlopen(f"http://127.0.0.1:{PORT}/console/").close()
                break
            except OSError:
                time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def opened(browser: Browser, width: int, height: int, query: str = "") -> Page:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light", locale="en-US")
    page.goto(f"http://127.0.0.1:{PORT}/console/{query}")
    page.locator("#summary .dot.live").wait_for()
    return page


def tab(page: Page, name: str) -> None:
    page.locator(f"#tab-{name}").click()
    page.mouse.move(5, 5)
    page.wait_for_timeout(500)


def step_before(page: Page, enough: Callable[[str], bool]) -> None:
    """Goes back in Decisions, to the newest step whose text is enough."""
    tab(page, "decisions")
    panel = page.locator("#panel-decisions")
    for _ in range(1000):
        panel.get_by_role("button", name="Back").click()
        page.wait_for_timeout(80)  # until it is drawn
        if enough(panel.inner_text()):
            return
    raise click.ClickException("no step is such a one: the machine was too busy, or too quick")


@contextmanager
def loaded() -> Iterator[None]:
    """Requests of all teams, meanwhile: as many at once on any machine."""
    ends = Event()

    def ask(team: str, number: int, shared: int, own: int, output: int) -> None:
        rng = Random(f"{team} {number}")
        with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=600) as client:
            while not ends.wait(rng.uniform(0.0, 0.5)):
                prompt = [7] * shared + [
                    rng.randrange(5, 900) for _ in range(rng.randint(own // 2, own * 3 // 2))
                ]
                body = {"model": "turnout-tiny", "user": team, "prompt": prompt, "ignore_eos": True}
                body["max_tokens"] = rng.randint(output // 2, output * 3 // 2)
                client.post("/v1/completions", json=body).raise_for_status()

    with ThreadPoolExecutor(32) as pool:
        for team, (clients, *sizes) in TEAMS.items():
            for number in range(clients):
                pool.submit(ask, team, number, *sizes)
        try:
            yield
        finally:
            ends.set()


def live(browser: Browser, take: Take) -> None:
    """README's picture and those of docs/how-to/observe.md."""
    with running(*TURNOUT, "serve", *CRAMPED):
        page = opened(browser, 1280, 820)
        with loaded():
            page.wait_for_timeout(1000 * BEFORE_SECONDS)
            for window in WINDOWS:
                page.locator("#window").select_option(window)
                page.wait_for_timeout(300)
                if int(page.locator("#panel-timeline .told").inner_text().split()[0]) >= LEAST_BARS:
                    break
            page.locator("canvas.bars").click(position={"x": 900, "y": 200})
            page.mouse.move(5, 5)
            page.wait_for_timeout(300)
            take(page, "console")
            tab(page, "memory")
            page.locator("canvas.pool").hover(position={"x": 300, "y": 60})
            page.wait_for_timeout(500)
            take(page, "console-memory")
            step_before(
                page,
                lambda text: all(word in text for word in ("prefill", "decode", "Admitted", "goes first")),
            )
            page.wait_for_timeout(300)
            take(page, "console-decisions")
            tab(page, "figures")
            take(page, "console-figures")


def trial(browser: Browser, take: Take) -> None:
    """Of a server that has two arms: Policies and the playground."""
    with running(*TURNOUT, "serve", *CRAMPED, "--ab=mlfq:scheduler=mlfq"):
        page = opened(browser, 1280, 820)
        with loaded():
            page.wait_for_timeout(1000 * BEFORE_SECONDS)
            tab(page, "policies")
            take(page, "console-policies")
        tab(page, "playground")
        page.get_by_role("button", name="Completion").click()
        page.get_by_role("button", name="Two side by side").click()
        for number, arm in enumerate(("base", "mlfq")):
            column = page.locator(".column").nth(number)
            column.get_by_label("arm").select_option(label=arm)
            column.get_by_label("logprobs").check()
        page.locator("#prompt").fill("def read_json(path):\n")
        page.get_by_role("button", name="Send").click()
        page.wait_for_timeout(3000)
        page.locator(".token").nth(12).hover()
        page.wait_for_timeout(300)
        take(page, "console-playground")


def tutorial(browser: Browser, take: Take, folder: Path) -> None:
    for policy in ("fcfs", "mlfq"):
        file = folder / f"{policy}.json"
        command = [*SIMULATE, f"--scheduler={policy}", f"--trace={file}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with running(*TURNOUT, "view", str(file), f"--port={PORT}", "--no-browser"):
            page = opened(browser, 1100, 624, "?trace=trace.json")
            page.wait_for_timeout(500)
            take(page, f"tutorial-{policy}", 540)
            if policy == "fcfs":
                page.set_viewport_size({"width": 1240, "height": 720})
                step_before(page, lambda text: "· 2.52 s" in text)
                page.wait_for_timeout(300)
                take(page, "tutorial-decisions", 620)


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Write the pictures."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

    def take(page: Page, name: str, height: int | None = None) -> None:
        if not names or name in names:
            size = page.viewport_size
            assert size is not None
            tall = height or size["height"]
            page.screenshot(
                path=IMAGES / f"{name}.png", clip={"x": 0, "y": 0, "width": size["width"], "height": tall}
            )
            click.echo(f"docs/images/{name}.png")

    with sync_playwright() as playwright, TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tutorial(browser, take, Path(folder))
        live(browser, take)
        trial(browser, take)
        browser.close()


if __name__ == "__main__":
    main()
