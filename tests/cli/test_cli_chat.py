"""``turnout chat``, from a pipe and in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from pty_terminal import terminal

from turnout.cli.main import cli

if TYPE_CHECKING:
    from conftest import FakeServer


def chat(fake: FakeServer, text: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["chat", "--url", fake.url, *arguments], input=text)


def test_each_line_of_a_pipe_is_answered(fake_server: FakeServer) -> None:
    done = chat(fake_server, "hello there\n\n你好 😀\n")
    assert (done.exit_code, done.stdout) == (0, "You said: hello there \nYou said: 你好 😀 \n")


def test_the_conversation_is_sent_along(fake_server: FakeServer) -> None:
    chat(fake_server, "one\ntwo\n", "--system", "Be brief.")
    assert [(m["role"], m["content"]) for m in fake_server.requests[1]["messages"]] == [
        ("system", "Be brief."),
        ("user", "one"),
        ("assistant", "You said: one "),
        ("user", "two"),
    ]


def test_only_given_parameters_are_sent(fake_server: FakeServer) -> None:
    chat(fake_server, "one\n", "--temperature", "0", "--max-tokens", "7")
    (request,) = fake_server.requests
    assert request.pop("messages")
    assert request == {"model": "fake-model", "stream": True, "temperature": 0.0, "max_tokens": 7}


def test_the_key_and_the_model_as_given(fake_server: FakeServer) -> None:
    chat(fake_server, "one\n", "--api-key", "secret", "--model", "other", "--url", f"{fake_server.url}/v1/")
    assert fake_server.keys == ["Bearer secret"]
    assert fake_server.requests[0]["model"] == "other"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("refuse", "the server refused (400): too long by 3 tokens"),
        ("break", "stopped with an error: the engine is gone"),
    ],
)
def test_what_the_server_says_is_shown(fake_server: FakeServer, prompt: str, message: str) -> None:
    done = chat(fake_server, f"{prompt}\n")
    assert done.exit_code == 1 and message in done.stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "127.0.0.1:9", "ftp://127.0.0.1", "http://[broken"])
def test_without_a_server_it_says_so(url: str) -> None:
    done = CliRunner().invoke(cli, ["chat", "--url", url], input="hello\n")
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert done.stderr.startswith("Error: ") and url.removeprefix("http://") in done.stderr


# ------------------------------------------------------------------ in a terminal


def test_ctrl_c_stops_the_answer_and_ctrl_d_leaves(fake_server: FakeServer) -> None:
    with terminal("chat", "--url", fake_server.url) as tty:
        tty.wait_for("fake-model at")
        tty.wait_for(">>> ")
        fake_server.pause = 0.2
        tty.type("a b c d e f g h i j k l m n o p\n")
        seen = tty.wait_for("You said:")
        tty.type("\x03")
        seen = tty.wait_for("(stopped)", seen)
        assert fake_server.cut.wait(10), "the server went on"
        fake_server.pause = 0.0
        seen = tty.wait_for(">>> ", seen)
        tty.type("again\n")
        seen = tty.wait_for("You said: again", seen)
        tty.wait_for(">>> ", seen)
        tty.type("\x03")
        seen = tty.wait_for("Ctrl-D or /exit leaves", seen)
        tty.wait_for(">>> ", seen)
        tty.type("\x04")
        assert tty.wait_for_end() == 0
        assert "Traceback" not in tty.screen
    roles = [message["role"] for message in fake_server.requests[1]["messages"]]
    assert roles == ["user", "assistant", "user"], "the cut answer is remembered"


def test_commands_and_several_lines(fake_server: FakeServer) -> None:
    with terminal("chat", "--url", fake_server.url) as tty:
        tty.wait_for(">>> ")
        tty.type("one\n")
        seen = tty.wait_for("You said: one")
        seen = tty.wait_for(">>> ", seen)
        tty.type("refuse\n")
        seen = tty.wait_for("too long by 3 tokens", seen)
        seen = tty.wait_for(">>> ", seen)
        tty.type("/what\n")
        seen = tty.wait_for("/reset forgets", seen)
        tty.type("/reset\n")
        seen = tty.wait_for("(forgotten)", seen)
        tty.type('"""first\nsecond"""\n')
        seen = tty.wait_for("You said: first", seen)
        tty.type("split \\\nline\n")
        seen = tty.wait_for("You said: split", seen)
        tty.wait_for(">>> ", seen)
        tty.type("/exit\n")
        assert tty.wait_for_end() == 0
    prompts = [[message["content"] for message in request["messages"]] for request in fake_server.requests]
    assert prompts[1] == ["one", "You said: one ", "refuse"]
    assert prompts[2] == ["first\nsecond"]
    assert prompts[3][-1] == "split \nline"
