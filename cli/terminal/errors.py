"""How errors reach the terminal: a message and an exit code, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from turnout.core.errors import ConfigError, TurnoutError

__all__ = ["INTERRUPTED", "reported"]

INTERRUPTED = 130
"""What a shell expects of a program that ended by Ctrl-C."""


class _Failure(click.ClickException):
    def __init__(self, error: TurnoutError) -> None:
        super().__init__(str(error))
        self.exit_code = 2 if isinstance(error, ConfigError) else 1  # type: ignore[misc]


@contextmanager
def reported() -> Iterator[None]:
    """Turn Turnout's errors into click's: exit code 2 for what was asked wrongly, 1 for what failed."""
    try:
        yield
    except TurnoutError as error:
        raise _Failure(error) from error
    except KeyboardInterrupt:
        click.echo(err=True)  # past the terminal's ^C
        raise click.exceptions.Exit(INTERRUPTED) from None
