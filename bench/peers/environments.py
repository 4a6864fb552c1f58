"""Environments of packages for peers, one each: made when a peer is asked for the first time, kept since."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

__all__ = ["OWN", "Environment", "environment", "tail"]


@dataclass(frozen=True)
class Environment:
    """Commands of pip, in order; what one of them fails with is the error."""

    name: str
    pip: Sequence[str]
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables for the installation, such as a build's options."""

    def python(self, folder: Path) -> Path:
        """Its interpreter; installs first where `folder` has no such environment yet."""
        home = folder / self.name
        done = home / "installed"
        if not done.exists() or done.read_text() != self._wanted():
            click.echo(f"installing {self.name} into {home}, which takes minutes", err=True)
            venv.create(home, with_pip=True, clear=True)
            for command in self.pip:
                self._install(home, command)
            done.write_text(self._wanted())
        return home / "bin" / "python"

    def _wanted(self) -> str:
        return "\n".join([*self.pip, *(f"{name}={value}" for name, value in self.variables.items())])

    def _install(self, home: Path, command: str) -> None:
        log = home / "install.log"
        with log.open("a") as out:
            words = [str(home / "bin" / "python"), "-m", "pip", *command.split()]
            done = subprocess.run(words, stdout=out, stderr=out, env=environment(self.variables), check=False)
        if done.returncode:
            raise click.ClickException(
                f"{self.name} could not be installed: pip {command} failed; {log} ends with:\n{tail(log)}"
            )


def environment(variables: dict[str, str]) -> dict[str, str]:
    """This process' variables and those; without PYTHONPATH, by which a peer could find our packages."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return inherited | variables


def tail(file: Path, lines: int = 12) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])


OWN = Path(sys.executable)
"""The interpreter of Turnout, which has transformers too."""
