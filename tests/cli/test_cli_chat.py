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


def test_an_answer_that_ends_early_is_an_error_on_a_line_of_its_own(fake_server: FakeServer) -> None:
    """Previously, half an answer passed for a whole one, with exit code 0."""
    fake_server.ending = "silent"
    done = chat(fake_server, "one\n")
    assert done.exit_code == 1
    expected = "You said: one \nError: the server ended the connection in the middle of the answer\n"
    assert done.output == expected
    fake_server.ending, fake_server.pause = "broken", 0.1  # aiohttp drops what has not been read by then
    assert chat(fake_server, "one\n").output == expected
    fake_server.ending, fake_server.finish_reason = "silent", "stop"
    assert chat(fake_server, "one\n").exit_code == 0, "the reason why it ends is enough"


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        ("length", "(cut off: max_tokens or the context is reached)"),
        ("content_filter", "(cut off: by the server's content filter)"),
        ("abort\x1b", "(the answer ended: abort␛)"),
    ],
)
def test_an_answer_that_is_not_whole_is_marked(fake_server: FakeServer, reason: str, note: str) -> None:
    fake_server.finish_reason = reason
    done = chat(fake_server, "one\ntwo\n")
    assert done.stdout == "You said: one \nYou said: two \n"
    assert done.stderr.splitlines() == [note, note] and done.exit_code == 0
    assert done.output.splitlines()[1] == note


def test_a_refusal_is_shown_and_remembered_as_such(fake_server: FakeServer) -> None:
    """Previously, nothing showed."""
    fake_server.turns = [[{"refusal": "I cannot "}, {"refusal": "help."}]]
    assert chat(fake_server, "one\ntwo\n").stdout == "I cannot help.\nYou said: two \n"
    assert fake_server.requests[1]["messages"][1] == {
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "I cannot help."}],
    }


def test_a_conversation_that_fills_the_context_is_called_so(fake_server: FakeServer) -> None:
    assert "conversation" not in chat(fake_server, "too much\n").stderr, "it is the prompt alone"
    done = chat(fake_server, "one\ntoo much\n")
    assert "Error: the conversation fills the model's context: the server refused (400)" in done.stderr


def test_a_key_may_end_in_a_line_break(fake_server: FakeServer) -> None:
    """Previously, the server was said to be incompatible."""
    assert chat(fake_server, "one\n", "--api-key", "secret\r\n").exit_code == 0
    assert fake_server.keys == ["Bearer secret"]


@pytest.mark.parametrize("key", ["sec\rret", "sec\nret", "sec\x00ret", "sec\udcffret"])
def test_a_key_that_cannot_be_sent_is_named(fake_server: FakeServer, key: str) -> None:
    done = chat(fake_server, "one\n", "--api-key", key)
    assert done.exit_code == 2 and f"the key (--api-key, --admin-key, or their variables) has {key[3]!a}" in (
        done.stderr
    )
    assert "sec" not in done.stderr and not fake_server.keys


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


def test_only_a_plain_line_is_a_command(fake_server: FakeServer) -> None:
    """Previously, no prompt could begin with a slash."""
    with terminal("chat", "--url", fake_server.url) as tty:
        tty.wait_for(">>> ")
        seen = 0
        for typed in ('"""\n/* c */\nint x;\n"""\n', '"""/exit"""\n', "/usr/bin/ls what?\n", "// why\n"):
            tty.type(typed)
            seen = tty.wait_for(">>> ", tty.wait_for("You said: /", seen))
        tty.type("/what is/this\n")
        tty.wait_for(">>> ", tty.wait_for("there is no command '/what is/this'", seen))
        tty.type("/exit\n")
        assert tty.wait_for_end() == 0
    prompts = [request["messages"][-1]["content"] for request in fake_server.requests]
    assert prompts == ["/* c */\nint x;", "/exit", "/usr/bin/ls what?", "// why"]


def test_errors_begin_a_line_and_a_full_context_names_the_way_out(fake_server: FakeServer) -> None:
    with terminal("chat", "--url", fake_server.url) as tty:
        tty.wait_for(">>> ")
        tty.type("break\n")
        seen = tty.wait_for("You said: break \r\nError: the server stopped with an error")
        seen = tty.wait_for(">>> ", seen)
        tty.type("one\n")
        seen = tty.wait_for(">>> ", tty.wait_for("You said: one", seen))
        tty.type("too much\n")
        seen = tty.wait_for("Error: the conversation fills the model's context", seen)
        tty.wait_for(">>> ", tty.wait_for("(/reset begins a new conversation)", seen))
        tty.type("/exit\n")
        assert tty.wait_for_end() == 0


@pytest.mark.parametrize(
    ("environment", "styled"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_reasoning_has_a_style_only_where_it_is_wanted(
    fake_server: FakeServer, environment: dict[str, str], styled: bool
) -> None:
    fake_server.turns = [[{"reasoning_content": "Hm."}, {"content": "Yes."}]]
    with terminal("chat", "--url", fake_server.url, **{"NO_COLOR": "", **environment}) as tty:
        tty.wait_for(">>> ")
        tty.type("one\n")
        tty.wait_for(">>> ", tty.wait_for("Yes."))
        assert ("\x1b[2mHm." in tty.screen) is styled
        tty.type("/exit\n")
        assert tty.wait_for_end() == 0
