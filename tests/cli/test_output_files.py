"""Where results cannot be written: known before the work where it can be, and never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from turnout.cli.main import cli

FULL = "/dev/full"
"""As a disk: every write fails for want of room."""
SIMULATION = ["--cost-model", "h100-7b", "--workload", "burst:requests=2,prompt=8,output=2"]
COMPARISON = [
    *("--simulate", "h100-7b", "--workload", "burst:requests=4,prompt=8,output=4", "--repeat", "2"),
    *("--arm", "a", "--arm", "b:scheduler=sjf"),
]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", *SIMULATION, "--json"),
        ("compare", *COMPARISON, "--json"),
        ("compare", *COMPARISON, "--report"),
        ("profile", "--out"),
        ("bench", "throughput", "--json"),
        ("bench", "workloads", "burst:requests=2,prompt=8,output=2", "--write"),
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_a_folder_that_is_not_there_is_told_before_the_work(command: tuple[str, ...], tmp_path: Path) -> None:
    """A benchmark ran for its hour, and said then that there is no such folder."""
    done = run(*command, tmp_path / "missing" / "out")
    assert done.exit_code == 2 and not done.stdout
    assert f"there is no folder {tmp_path / 'missing'}" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", *SIMULATION, "--json", "a", "--trace", "./a"),
        ("compare", *COMPARISON, "--json", "a", "--report", "./a"),
        ("bench", "throughput", "--json", "a", "--csv", "./a"),
    ],
    ids=lambda command: command[0],
)
def test_a_file_for_two_results_is_refused(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second was written over the first."""
    monkeypatch.chdir(tmp_path)
    done = run(*command)
    assert done.exit_code == 2 and "a is given as --" in done.stderr and not list(tmp_path.iterdir())


def test_a_device_takes_several_results() -> None:
    done = run("simulate", *SIMULATION, "--json", "/dev/null", "--trace", "/dev/null")
    assert done.exit_code == 0, done.stderr


@pytest.mark.skipif(not Path(FULL).exists(), reason="the system has no such device")
@pytest.mark.parametrize(
    "command",
    [("simulate", *SIMULATION, "--json"), ("compare", *COMPARISON, "--json")],
    ids=lambda command: command[0],
)
def test_a_disk_that_is_full_is_told_in_a_line(command: tuple[str, ...]) -> None:
    done = run(*command, FULL)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == f"Error: {FULL} cannot be written: No space left on device"


@pytest.mark.skipif(not Path(FULL).exists(), reason="the system has no such device")
@pytest.mark.parametrize("command", [("plugins",), ("simulate", *SIMULATION)], ids=lambda command: command[0])
def test_standard_output_that_is_full_is_told_in_a_line(command: tuple[str, ...]) -> None:
    with open(FULL, "w") as full:
        program = [sys.executable, "-c", "from turnout.cli.main import main; main()", *command]
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "Error: the output cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
