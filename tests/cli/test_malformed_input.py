"""Input that no file or terminal should hold ends in a message, not in a traceback."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from turnout.cli.main import cli
from turnout.cli.options.config_file import read_config_file
from turnout.cli.terminal.lazy_group import LazyCommand, LazyGroup
from turnout.core.errors import ConfigError

if TYPE_CHECKING:
    from conftest import FakeServer

PRINTS_MODEL = """
import sys
from turnout.cli.main import cli, main
cli.callback = lambda: sys.stdout.write("模型😀")
cli.invoke_without_command, cli.no_args_is_help = True, False
sys.argv[1:] = []
main()
"""


@pytest.mark.parametrize("text", ["day: 2020-13-45", "[" * 20_000], ids=["a date in month 13", "deep"])
def test_a_config_file_that_yaml_breaks_on(tmp_path: Path, text: str) -> None:
    """PyYAML raises more than YAMLError."""
    file = tmp_path / "turnout.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not YAML"):
        read_config_file(file)


@pytest.mark.parametrize("number", ["010", "-017", "1:30", "1:30.5", "1:30:00"])
def test_numbers_that_yaml_reads_to_another_base(tmp_path: Path, number: str) -> None:
    """YAML 1.1 takes 010 for 8 and 1:30 for 90: a port and a time of which the file says nothing."""
    file = tmp_path / "turnout.yaml"
    file.write_text(f"shutdown-timeout: {number}")
    with pytest.raises(ConfigError, match=f"{number} is no decimal number, .*in quotes"):
        read_config_file(file)
    file.write_text(f"shutdown-timeout: '{number}'\nport: 0\nsplit: 0.5\nengine-restarts: +8")
    read = {"shutdown_timeout": number, "port": 0, "split": 0.5, "engine_restarts": 8}
    assert read_config_file(file) == read


def test_a_folder_that_cannot_have_its_name() -> None:
    """`pathlib` raises OSError for it, where it answers False for one that is not there."""
    done = CliRunner().invoke(cli, ["serve", "--plugins-folder", "x" * 5_000])
    assert done.exit_code == 2 and "there is no folder xxx" in done.stderr


def test_a_process_that_may_open_no_more_files() -> None:
    """The traceback ended in zmq's channel, and did not name the limit."""

    def exhausted() -> None:
        raise OSError(errno.EMFILE, "Too many open files", "/dev/null")

    group = LazyGroup("turnout", lazy={"serve": LazyCommand("", "")})
    group.get_command = lambda ctx, name: click.Command(name, callback=exhausted)  # type: ignore[method-assign]
    done = CliRunner().invoke(group, ["serve"])
    assert isinstance(done.exception, SystemExit)
    assert re.fullmatch(
        r"Error: Too many open files; raise the limit .* is \d+ \(`ulimit -n`\)\n", done.stderr
    )


def test_a_process_that_may_start_no_more_threads() -> None:
    """A container's limit of pids was a traceback of asyncio's, and did not name the limit."""

    def exhausted() -> None:
        raise RuntimeError("can't start new thread")

    group = LazyGroup("turnout", lazy={"serve": LazyCommand("", "")})
    group.get_command = lambda ctx, name: click.Command(name, callback=exhausted)  # type: ignore[method-assign]
    done = CliRunner().invoke(group, ["serve"])
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit)
    assert re.fullmatch(
        r"Error: the process could start no further thread or process .*`ulimit -u`.*\n", done.stderr
    )


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_pipe_that_is_not_utf8(fake_server: FakeServer, errors: str) -> None:
    """Python reads it either way, by locale: what it let through could not be encoded when it was sent."""
    done = subprocess.run(
        [sys.executable, "-c", "from turnout.cli.main import main; main()", "chat", "--url", fake_server.url],
        input=b"caf\xe9\n",
        capture_output=True,
        env={"PYTHONIOENCODING": f"utf-8:{errors}"},
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"Error: ") and b"utf-8" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["gbk", "ascii"])
def test_a_terminal_that_has_no_such_character(encoding: str) -> None:
    """Each such name ended in a UnicodeEncodeError."""
    done = subprocess.run(
        [sys.executable, "-c", PRINTS_MODEL],
        capture_output=True,
        env={"PYTHONIOENCODING": encoding},
        check=True,
    )
    assert done.stdout.decode(encoding).rstrip().endswith("\\U0001f600") and not done.stderr


def test_a_temperature_that_is_no_number(fake_server: FakeServer) -> None:
    """JSON has no word for it."""
    arguments = ["chat", "--url", fake_server.url, "--temperature", "nan"]
    done = CliRunner().invoke(cli, arguments, input="hello\n")
    assert done.exit_code == 1 and "this cannot be sent" in done.stderr


def test_a_rollout_of_two_models_and_an_answer_that_is_nested_too_deeply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of the models was rolled out, and the answer was a traceback."""
    done = CliRunner().invoke(cli, ["rollout", "one", "--model", "two"])
    assert done.exit_code == 2 and "the model is given twice: one and --model two" in done.stderr

    async def nested(*_: object) -> object:
        return json.loads("[" * 100_000)

    monkeypatch.setattr("turnout.cli.rollout._ask", nested)
    done = CliRunner().invoke(cli, ["rollout", "--status"])
    assert done.exit_code == 1 and "knows no rollouts" in done.stderr


def test_a_key_beyond_ascii(fake_server: FakeServer) -> None:
    """The server takes such keys, but the client took it for a wrong address."""
    arguments = ["chat", "--url", fake_server.url, "--api-key", "sécret"]
    assert CliRunner().invoke(cli, arguments, input="hello\n").exit_code == 0
    assert fake_server.keys == ["Bearer sécret".encode().decode("latin-1")]


@pytest.mark.parametrize(
    "arguments",
    [
        ("chat", "--api-key"),
        ("top", "--api-key"),
        ("trace", "--api-key"),
        ("rollout", "--status", "--api-key"),
        ("bench", "serve", "--model", "m", "--api-key"),
    ],
    ids=" ".join,
)
def test_a_key_of_two_lines_is_refused_before_anything_is_sent(
    fake_server: FakeServer, arguments: tuple[str, ...]
) -> None:
    """A header holds no line break; previously, the server was blamed, or a traceback came."""
    done = CliRunner().invoke(cli, [*arguments, "one\ntwo", "--url", fake_server.url], input="hello\n")
    assert done.exit_code == 2 and "has '\\n' as character 4 of 7" in done.stderr
    assert not fake_server.keys and not fake_server.requests
