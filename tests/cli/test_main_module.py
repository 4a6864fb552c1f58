"""``python -m turnout`` is the console script ``turnout``."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from turnout.cli.main import cli


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_the_module_runs_the_command(arguments):
    run = subprocess.run(
        [sys.executable, "-m", "turnout", *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    script = CliRunner().invoke(cli, arguments, prog_name="turnout", terminal_width=80)
    assert run.stdout.splitlines()[0] == script.stdout.splitlines()[0]


def test_an_unknown_command_exits_2_under_the_name_of_the_script():
    run = subprocess.run(
        [sys.executable, "-m", "turnout", "no-such"], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 2
    assert "Usage: turnout" in run.stderr
