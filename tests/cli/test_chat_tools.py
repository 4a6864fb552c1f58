"""``turnout chat --tools``: functions of a file are called after a yes, and their results go back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from pty_terminal import terminal

from turnout.cli.chat.answer import Call
from turnout.cli.chat.conversation import MOST_ROUNDS
from turnout.cli.chat.toolbox import MOST_RESULT, load_tools
from turnout.cli.main import cli
from turnout.core.errors import ConfigError

if TYPE_CHECKING:
    from conftest import FakeServer

FILE = '''
import time
from math import floor

def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b

def nap(seconds: float) -> str:
    """Sleeps.

    Args:
        seconds: How long.
    """
    print("asleep", flush=True)
    time.sleep(seconds)
    return "rested"

async def shout(text: str) -> dict:
    """Shouts.

    Args:
        text: What.
    """
    return {"shouted": text.upper(), "ok": True}

def fail() -> None:
    """Fails."""
    raise ValueError("no way")

def leave() -> str:
    """Leaves."""
    raise SystemExit(3)

def pairs() -> dict:
    """Has keys that JSON has not."""
    return {(1, 2): 3}

def half() -> str:
    """Is no text."""
    return "a\\ud800"

def circle() -> list:
    """Contains itself."""
    found = []
    found.append(found)
    return found

def flood() -> str:
    """Says much."""
    return "x" * 100_000

def _hidden() -> None: ...
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tools.py"
    path.write_text(FILE)
    return path


def calling(*calls: tuple[str, str], text: str = "") -> list[dict[str, Any]]:
    """An answer with calls, streamed in pieces."""
    deltas: list[dict[str, Any]] = [{"reasoning_content": "Hm."}]
    deltas += [{"content": text}] if text else []
    for index, (name, arguments) in enumerate(calls):
        begin = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name}}
        deltas.append({"tool_calls": [begin]})
        half = len(arguments) // 2
        for piece in (arguments[:half], arguments[half:]):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    return deltas


def chat(fake: FakeServer, text: str, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["chat", "--url", fake.url, *map(str, arguments)], input=text)


# ------------------------------------------------------------------ the loop


def test_a_call_runs_and_its_result_goes_back(fake_server: FakeServer, file: Path) -> None:
    fake_server.turns = [calling(("add", '{"a": 2, "b": 3}'), text="I add."), [{"content": "It is 5."}]]
    done = chat(fake_server, "2 and 3?\n", "--tools", file, "--yes")
    assert done.exit_code == 0 and done.stdout == "I add.It is 5.\n"
    assert done.stderr.splitlines() == ["add(a=2, b=3)", "→ 5"]
    first, second = fake_server.requests
    names = [tool["function"]["name"] for tool in first["tools"]]
    assert names == ["add", "nap", "shout", "fail", "leave", "pairs", "half", "circle", "flood"], (
        "no imported function, and none that is hidden"
    )
    add = first["tools"][0]["function"]
    assert add["description"] == "Adds two numbers." and add["parameters"]["required"] == ["a", "b"]
    asked, called, result = second["messages"]
    assert asked["content"] == "2 and 3?" and called["content"] == "I add."
    assert called["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 2, "b": 3}'}
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "call_0", "5")


def test_several_calls_of_an_answer(fake_server: FakeServer, file: Path) -> None:
    fake_server.turns = [calling(("add", '{"a": 1, "b": 1}'), ("shout", '{"text": "hi"}')), []]
    chat(fake_server, "go\n", "--tools", file, "--yes")
    results = [message["content"] for message in fake_server.requests[1]["messages"][2:]]
    assert results[0] == "2" and json.loads(results[1]) == {"shouted": "HI", "ok": True}


@pytest.mark.parametrize(
    "arguments", ['{"a": 1, "b"', "[1, 2]", "", pytest.param("[" * 100_000, id="deeper than Python reads")]
)
def test_a_call_that_is_cut_off_goes_back_without_arguments_and_the_turn_goes_on(
    fake_server: FakeServer, file: Path, arguments: str
) -> None:
    """Servers refuse a history with arguments that are no JSON object."""
    fake_server.turns = [calling(("add", arguments)), [{"content": "Again."}]]
    done = chat(fake_server, "go\n", "--tools", file, "--yes")
    assert done.exit_code == 0 and done.stdout == "Again.\n" and "→ Error: " in done.stderr
    _, called, result = fake_server.requests[1]["messages"]
    assert called["tool_calls"][0]["function"] == {"name": "add", "arguments": "{}"}
    assert result["content"].startswith("Error: ")


def test_the_loop_ends(fake_server: FakeServer, file: Path) -> None:
    fake_server.turns = [calling(("add", '{"a": 1, "b": 1}'))] * 100
    done = chat(fake_server, "go\n", "--tools", file, "--yes")
    assert len(fake_server.requests) == MOST_ROUNDS
    assert f"stopped after {MOST_ROUNDS} rounds" in done.stderr and done.exit_code == 0


def test_without_a_terminal_nobody_can_be_asked(fake_server: FakeServer, file: Path) -> None:
    done = chat(fake_server, "go\n", "--tools", file)
    assert done.exit_code != 0 and "give --yes" in done.stderr and not fake_server.requests


# ------------------------------------------------------------------ functions


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("add", '{"a": 1}', "Error: missing a required argument: 'b'"),
        ("add", '{"a": 1, "b"', "Error: the arguments are not complete"),
        ("add", "[1, 2]", "Error: "),
        ("fail", "{}", "Error: ValueError: no way"),
        ("fail", "", "Error: ValueError: no way"),
        ("leave", "{}", "Error: SystemExit: 3"),
        ("pairs", "{}", "Error: TypeError: keys must be str"),
        ("half", "{}", "Error: UnicodeEncodeError: "),
        ("circle", "{}", "Error: ValueError: Circular reference"),
        ("_hidden", "{}", "Error: there is no function '_hidden'; there are add, nap"),
        ("floor", '{"x": 1}', "Error: there is no function 'floor'"),
    ],
)
def test_what_goes_wrong_is_told_to_the_model(file: Path, name: str, arguments: str, result: str) -> None:
    assert load_tools(file).run(Call("1", name, arguments)).startswith(result)


def test_a_long_result_is_cut(file: Path) -> None:
    assert len(load_tools(file).run(Call("1", "flood", "{}"))) < MOST_RESULT + 20


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("x = 1\n", "defines no functions"),
        ("def f(:\n", "SyntaxError"),
        ("\n\n1 / 0\n", "line 3: ZeroDivisionError"),
        ("import nothing_like_this\n", "ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
        ('def f(a):\n    """Has no type."""\n', "the function f cannot become a tool"),
        ("def f(a: int): ...\n", "the function f cannot become a tool"),
    ],
)
def test_a_file_that_will_not_do_is_told(
    fake_server: FakeServer, tmp_path: Path, content: str, why: str
) -> None:
    file = tmp_path / "tools.py"
    file.write_text(content)
    with pytest.raises(ConfigError, match=why):
        load_tools(file)
    done = chat(fake_server, "go\n", "--tools", file, "--yes")
    assert done.exit_code != 0 and str(file) in done.stderr and isinstance(done.exception, SystemExit)


# ------------------------------------------------------------------ in a terminal


def test_a_call_runs_after_a_yes(fake_server: FakeServer, file: Path) -> None:
    call = calling(("add", '{"a": 2, "b": 3}'))
    again = [call, [{"content": "Done."}]]
    fake_server.turns = [call, call, call, [{"content": "Five."}], *again]
    with terminal("chat", "--url", fake_server.url, "--tools", str(file)) as tty:
        tty.wait_for(">>> ")
        tty.type("go\n")
        seen = tty.wait_for("Hm.")
        seen = tty.wait_for("add(a=2, b=3)", seen)
        seen = tty.wait_for("run it?", seen)
        tty.type("what\n")
        seen = tty.wait_for("run it?", seen)
        tty.type("n\n")
        seen = tty.wait_for("run it?", seen)
        tty.type("y\n")
        seen = tty.wait_for("→ 5", seen)
        seen = tty.wait_for("run it?", seen)
        tty.type("a\n")
        seen = tty.wait_for("Five.", seen)
        seen = tty.wait_for(">>> ", seen)
        tty.type("again\n")
        seen = tty.wait_for("Done.", seen)
        assert "run it?" not in tty.screen[tty.screen.index("Five.") :], "always means always"
        tty.type("/exit\n")
        assert tty.wait_for_end() == 0
    results = [m["content"] for m in fake_server.requests[3]["messages"] if m["role"] == "tool"]
    assert results == ["The user declined to run this.", "5", "5"]


def test_ctrl_c_stops_a_call_and_the_conversation_goes_on(fake_server: FakeServer, file: Path) -> None:
    calls = calling(("nap", '{"seconds": 60}'), ("add", '{"a": 1, "b": 1}'))
    fake_server.turns = [calls, [{"content": "Fine."}], calling(("add", '{"a": 1, "b": 1}'))]
    with terminal("chat", "--url", fake_server.url, "--tools", str(file)) as tty:
        tty.wait_for(">>> ")
        tty.type("sleep\n")
        seen = tty.wait_for("run it?")
        tty.type("y\n")
        seen = tty.wait_for("asleep", seen)
        tty.type("\x03")
        seen = tty.wait_for("(stopped)", seen)
        seen = tty.wait_for(">>> ", seen)
        tty.type("go on\n")
        seen = tty.wait_for("Fine.", seen)
        seen = tty.wait_for(">>> ", seen)
        tty.type("add\n")
        seen = tty.wait_for("run it?", seen)
        time.sleep(0.5)  # readline holds a signal back that comes while it begins to read
        tty.type("\x03")
        seen = tty.wait_for("(stopped)", seen)
        tty.wait_for(">>> ", seen)
        tty.type("/exit\n")
        assert tty.wait_for_end() == 0
        assert "Traceback" not in tty.screen
    told = [m["content"] for m in fake_server.requests[1]["messages"] if m["role"] == "tool"]
    assert told == ["The user stopped this."] * 2, "every call has its result"


def test_a_call_cannot_write_to_the_terminal(fake_server: FakeServer, file: Path) -> None:
    fake_server.turns = [calling(("shout\x1b[2J", '{"text": "\x1b]52;c;x\x07"}')), []]
    with terminal("chat", "--url", fake_server.url, "--tools", str(file), "--yes") as tty:
        tty.wait_for(">>> ")
        tty.type("go\n")
        tty.wait_for(">>> ", tty.wait_for("shout␛[2J"))
        assert "\x1b[2J" not in tty.screen and "\x1b]52" not in tty.screen
        tty.type("/exit\n")
        assert tty.wait_for_end() == 0
