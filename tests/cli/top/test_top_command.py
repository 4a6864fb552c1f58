"""``turnout top`` as it is used: one table, JSON, and in a terminal."""

from __future__ import annotations

import json
import re
import signal
import sys
from io import StringIO

import pytest
from click.testing import CliRunner, Result
from live_news import EVIL, engine, event, request, said, stats
from live_server import LiveServer
from pty_terminal import shell, terminal
from rich.console import Console

from turnout.cli.main import cli
from turnout.cli.top.screen import View, drawn
from turnout.cli.top.watched import Watched

COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7])(?:;[0-9;]*)?m")


def top(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, ["top", *arguments], env=environment)


@pytest.fixture
def busy(live_server: LiveServer) -> LiveServer:
    requests = [
        request("cmpl-1", "decode", client="ann", output_tokens=7),
        request("cmpl-2", "waiting", client=EVIL),
        request("cmpl-3", "prefill", client="检索团队", computed=10),
    ]
    step = said(order=["cmpl-2"], why={"cmpl-2": f"place 1, {EVIL}"})
    told = engine(requests=requests, steps=[step], stats=stats(5, running=2, waiting=1))
    live_server.tell(event(100.0, told, engine("1", stats=stats(3, kv_free=10)), first=True))
    return live_server


def test_once_prints_a_table_without_escapes_or_what_a_client_smuggles_in(busy: LiveServer) -> None:
    result = top("--url", busy.url, "--once", TURNOUT_ADMIN_KEY="admin")
    assert result.exit_code == 0, result.output
    assert busy.keys == ["Bearer admin"]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.output)
    lines = result.output.splitlines()
    assert [line.split()[:6] for line in lines if line.startswith("m/")] == [
        ["m/0", "serving", "2", "1", "60%", "–"],
        ["m/1", "serving", "0", "0", "99%", "–"],
    ]
    rows = [line.split() for line in lines if line.startswith("cmpl-")]
    assert [row[0] for row in rows] == ["cmpl-1", "cmpl-3", "cmpl-2"]
    assert "检索团队" in rows[1] and "25%" in rows[1]
    assert "␛[31m" in " ".join(rows[2]) and "place" in rows[2]


def test_json_has_all_figures_and_the_filter(busy: LiveServer) -> None:
    result = top("--url", busy.url, "--json", "--filter", "检索", "--api-key", "admin")
    told = json.loads(result.output)
    assert [row["id"] for row in told["requests"]] == ["cmpl-3"]
    assert [one["kv_use"] for one in told["engines"]] == pytest.approx([0.6, 0.99])
    assert told["engines"][0]["states"] == {"prefill": 1, "decode": 1, "waiting": 1}
    assert "\x1b" not in result.output and told["url"] == busy.url


def test_a_server_that_refuses_or_is_none_is_told_in_a_line(busy: LiveServer) -> None:
    refused = top("--url", busy.url, "--once", "--api-key", "wrong")
    assert refused.exit_code == 1
    assert "refuses (401): a valid admin key is required" in refused.output
    assert "TURNOUT_ADMIN_KEY" in refused.output and "\x1b" not in refused.output
    busy.status = 404
    other = top("--url", busy.url, "--once", "--api-key", "admin")
    assert other.exit_code == 1 and "is it a server of Turnout's?" in other.output
    nobody = top("--url", "http://127.0.0.1:9", "--once")
    assert nobody.exit_code == 1 and "no answer from http://127.0.0.1:9" in nobody.output
    wrong = top("--url", "ftp://nowhere", "--once")
    assert wrong.exit_code == 2 and "is not the address of a server" in wrong.output
    for result in (refused, other, nobody, wrong):
        assert "Traceback" not in result.output


def test_a_server_that_says_nonsense_is_told_in_a_line(live_server: LiveServer) -> None:
    live_server.connect = nonsense = _nonsense  # type: ignore[method-assign]
    assert nonsense
    result = top("--url", live_server.url, "--once", "--api-key", "admin")
    assert result.exit_code == 1 and "sends what is no event of Turnout's" in result.output


def _nonsense():  # type: ignore[no-untyped-def]
    from queue import Queue

    queue: Queue[bytes | None] = Queue()
    queue.put(b'data: {"choices": []}\n\n')
    return queue


ARGUMENTS = ("top", "--api-key", "admin")
SCREEN = {"size": (20, 130), "TERM": "xterm-256color"}


def test_keys_sort_filter_pause_and_quit(busy: LiveServer) -> None:
    with terminal(*ARGUMENTS, "--url", busy.url, **SCREEN) as shown:
        shown.wait_for("q quit")
        at = shown.wait_for("检索团队")
        shown.type("s")
        at = shown.wait_for("sorted by age", at)
        shown.type("f")
        at = shown.wait_for("filter:", at)
        shown.type("检索")
        at = shown.wait_for("filter: 检索", at)
        shown.type("\n")
        at = shown.wait_for("only '检索'", at)
        shown.type("p")
        at = shown.wait_for("paused", at)
        busy.tell(event(101.0, engine(requests=[request("cmpl-9", client="检索后来")])))
        shown.resize(12, 70)
        at = shown.wait_for("paused", at)
        assert "检索后来" not in shown.screen
        shown.type("p")
        shown.wait_for("检索后来", at)
        assert COLOUR.search(shown.screen) and "pwned\x07" not in shown.screen
        shown.type("q")
        assert shown.wait_for_end() == 0
        assert shown.screen.rstrip().endswith(("\x1b[?1049l", "\x1b[?25h")), "the screen is as it was before"


def test_no_colour_where_the_user_wants_none(busy: LiveServer) -> None:
    with terminal(*ARGUMENTS, "--url", busy.url, **SCREEN, NO_COLOR="1") as shown:
        shown.wait_for("检索团队")
        shown.type("q")
        assert shown.wait_for_end() == 0
        assert not COLOUR.search(shown.screen)


def test_a_server_that_goes_and_comes_back(busy: LiveServer) -> None:
    with terminal(*ARGUMENTS, "--url", busy.url, **SCREEN) as shown:
        at = shown.wait_for("cmpl-1")
        busy.stop()
        at = shown.wait_for("connection lost, trying again", at)
        busy.told = [event(200.0, engine(requests=[request("cmpl-new")]), first=True)]
        busy.start()
        shown.wait_for("cmpl-new", at)
        busy.key = "another"
        busy.stop()
        busy.start()
        assert shown.wait_for_end() == 1, "trying again is of no use"
        assert "refuses (401)" in shown.screen and "Traceback" not in shown.screen


def test_ctrl_c_ends_it(busy: LiveServer) -> None:
    with terminal(*ARGUMENTS, "--url", busy.url, **SCREEN) as shown:
        shown.wait_for("cmpl-1")
        shown.type("\x03")
        assert shown.wait_for_end() == 130
        assert "Traceback" not in shown.screen


LEFT = "\x1b[?1049l"
"""Leaves the alternate screen."""


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(
    busy: LiveServer, ending: signal.Signals, code: int
) -> None:
    """Previously, the alternate screen stayed, without a cursor and without echo."""
    with terminal(*ARGUMENTS, "--url", busy.url, **SCREEN) as shown:
        shown.wait_for("cmpl-1")
        assert not shown.echoes
        shown.process.send_signal(ending)
        assert shown.wait_for_end() == code
        assert LEFT in shown.screen and "\x1b[?25h" in shown.screen and shown.echoes
        assert "Traceback" not in shown.screen


def test_ctrl_z_stops_it_outside_of_its_screen_and_fg_brings_it_back(busy: LiveServer) -> None:
    with shell(**SCREEN, PS1="jobs$ ", TURNOUT_ADMIN_KEY="admin") as shown:
        shown.wait_for("jobs$ ")
        shown.type(f"{sys.executable} -m turnout top --url {busy.url}\n")
        at = shown.wait_for("cmpl-1")
        shown.type("\x1a")
        at = shown.wait_for("Stopped", shown.wait_for(LEFT, at))
        at = shown.wait_for("jobs$ ", at)
        assert "cmpl-1" not in shown.screen[shown.screen.rindex(LEFT) :]
        shown.type("fg\n")
        at = shown.wait_for("cmpl-1", shown.wait_for("\x1b[?1049h", at))
        shown.type("q")
        at = shown.wait_for("jobs$ ", shown.wait_for(LEFT, at))
        shown.type("exit\n")
        assert shown.wait_for_end() == 0


def test_a_figure_is_whole_or_absent() -> None:
    """Previously, narrow terminals showed `1,0…` of 1,000 tokens a second."""
    watched = Watched()
    one = request("cmpl-0123456789abcdef", output_tokens=700, max_tokens=1024, prompt_tokens=12345)
    for at in (100, 102):
        told = stats(at, running=12, waiting=345, output_tokens=617 * at, preemptions=1234)
        watched.hear(event(at, engine(name="a-model/base/0", stats=told, requests=[one]), first=at == 100))
    for width in range(16, 120):
        shown = printed(watched, width)
        for titles, row in (shown[1:3], shown[4:6]):
            cut = [cell for cell in row.split() if "…" in cell]
            texts = [title for title in titles.split() if title in TEXTS]
            assert len(cut) <= len(texts) and not re.search(r"[\d,.]…|…[,.%]", row), "\n".join(shown)


def printed(watched: Watched, width: int) -> list[str]:
    console = Console(width=width, file=StringIO())
    console.print(drawn(watched, View("http://x"), 102.0, width, None))
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return lines


TEXTS = ("ENGINE", "STATE", "SCHEDULER", "REQUEST", "CLIENT", "WHY")


def test_a_narrow_screen_cuts_texts_before_it_leaves_columns_out() -> None:
    watched = Watched()
    watched.hear(event(100.0, engine(name="a-model/base/0", stats=stats()), first=True))
    _, titles, row, *_ = printed(watched, 46)
    assert titles.split() == ["ENGINE", "STATE", "RUN", "WAIT", "KV", "TOK/S", "TTFT"]
    assert row.split()[0].endswith("/base/0"), "the end of a name tells engines apart"


@pytest.mark.parametrize("key", ["admin\r\n", " admin "])
def test_a_key_may_end_in_a_line_break(busy: LiveServer, key: str) -> None:
    assert top("--url", busy.url, "--once", TURNOUT_ADMIN_KEY=key).exit_code == 0
    assert busy.keys == ["Bearer admin"]


def test_a_key_with_a_line_break_inside_is_named(busy: LiveServer) -> None:
    refused = top("--url", busy.url, "--once", TURNOUT_ADMIN_KEY="ad\rmin")
    assert refused.exit_code == 2 and "has '\\r' as character 3 of 6" in refused.output
    assert not busy.keys
