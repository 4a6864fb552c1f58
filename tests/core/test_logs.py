"""Lines of the log: what they hold, and that nothing that is logged breaks them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from turnout.core.logs import JsonLines, TextLines, about


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("turnout.x", logging.WARNING, __file__, 1, message, args, None)
    made.created = 1700000000.25
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def as_json(made: logging.LogRecord, **process: str) -> dict[str, Any]:
    text = JsonLines(process).format(made)
    assert "\n" not in text
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_line_of_json() -> None:
    made = record("%d of %s", 3, "it", fields={"model": "tiny", "status": 200})
    with about("mine"):
        line = as_json(made, process="engine", replica="0", arm="")
    assert line.pop("pid") == made.process
    assert line == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "turnout.x",
        "message": "3 of it",
        "process": "engine",
        "replica": "0",
        "request_id": "mine",
        "model": "tiny",
        "status": 200,
    }
    assert "request_id" not in as_json(made)


def test_a_line_of_text() -> None:
    made = record("GET %s", "/x", fields={"path": "/x", "model": "a b", "seconds": 0.25}, said=("path",))
    with about("mine"):
        assert TextLines().format(made) == 'WARNING turnout.x: [mine] GET /x model="a b" seconds=0.25'
    assert TextLines().format(record("it")) == "WARNING turnout.x: it"


HOSTILE = {
    "newline": "a\nERROR turnout: forged",
    "escape": "\x1b[2J",
    "separators": "\u2028\u2029",
    "surrogate": "\ud800",
    "nul": "\x00",
    "quotes": '"quoted" \\',
    "long": "x" * 10**6,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_nothing_that_is_logged_ends_a_line_or_steers_a_terminal(text: str) -> None:
    made = record("%s", text, fields={"model": text, "prompts": [text]})
    line = as_json(made)
    if "\ud800" not in text:
        assert line["message"] == line["model"] == line["prompts"][0] == text
    shown = TextLines().format(made)
    assert not {"\n", "\r", "\x1b", "\u2028", "\x00"} & set(shown)


def test_a_traceback_is_within_its_line_of_json_and_below_its_line_of_text() -> None:
    try:
        raise ValueError("what")
    except ValueError:
        made = record("it failed")
        made.exc_info = sys.exc_info()
    assert 'raise ValueError("what")' in as_json(made)["exception"]
    first, second, *_, last = TextLines().format(made).splitlines()
    assert (first, last) == ("WARNING turnout.x: it failed", "ValueError: what")
    assert second.startswith("Traceback")


def test_what_no_json_has_is_written_as_text() -> None:
    line = as_json(record("it", fields={"an object": object, "much": 2**70, "not a number": float("nan")}))
    assert line["an object"] == "<class 'object'>" and int(line["much"]) == 2**70
    assert line["not a number"] is None


def test_warnings_and_what_nothing_catches_are_json_too() -> None:
    script = """
import threading, warnings
from turnout.core.logs import LogStyle, start_logging
start_logging(LogStyle("info", "json"), process="engine")
warnings.warn("careful")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise KeyError("nothing")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["warning", "error", "critical"]
    assert "careful" in lines[0]["message"]
    assert "ZeroDivisionError" in lines[1]["exception"] and "KeyError" in lines[2]["exception"]
    assert {line["process"] for line in lines} == {"engine"}
