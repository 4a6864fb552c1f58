"""Reports errors in the terminal by a message and an exit code, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from turnout.cli.terminal.printable import printable
from turnout.core.errors import ConfigError, TurnoutError

__all__ = ["INTERRUPTED", "reported"]

INTERRUPTED = 130
"""The exit code that a shell expects of a program ended by Ctrl-C."""


class _Failure(click.ClickException):
    def __init__(self, error: TurnoutError) -> None:
        super().__init__(printable(str(error)))
        self.exit_code = 2 if isinstance(error, ConfigError) else 1  # type: ignore[misc]


@contextmanager
def reported() -> Iterator[None]:
    """Turns Turnout's errors into click's, with exit code 2 for a wrong configuration and 1 for a failure."""
    try:
        yield
    except TurnoutError as error:
        raise _Failure(error) from error
    except KeyboardInterrupt:
        click.echo(err=True)  # past the terminal's ^C
        raise click.exceptions.Exit(INTERRUPTED) from None
