"""Reports errors in the terminal by a message and an exit code, never a traceback."""

from __future__ import annotations

import errno
import logging
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from turnout.cli.terminal.printable import printable
from turnout.core.errors import ConfigError, NoRoom, TurnoutError, as_no_room
from turnout.core.logs import logs_json

__all__ = ["INTERRUPTED", "reported"]

INTERRUPTED = 130
"""The exit code that a shell expects of a program ended by Ctrl-C."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Where standard output cannot be written. (A reader that has left is no error.)"""


EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})
"""No more files or sockets may be opened, by this process or at all."""


class _Failure(click.ClickException):
    def __init__(self, error: TurnoutError) -> None:
        super().__init__(printable(str(error)))
        wrong = isinstance(error, ConfigError) and not isinstance(error, NoRoom)  # there may be room later
        self.exit_code = 2 if wrong else 1  # type: ignore[misc]

    def show(self, file: IO[Any] | None = None) -> None:
        """On standard error, which has nothing but lines of JSON where the log is JSON."""
        if logs_json():
            logging.getLogger("turnout").critical(self.message)
        else:
            super().show(file)


@contextmanager
def reported() -> Iterator[None]:
    """Turns Turnout's errors into click's, with exit code 2 for a wrong configuration and 1 for a failure."""
    try:
        with as_no_room("the process"):
            yield
    except TurnoutError as error:
        raise _Failure(error) from error
    except OSError as error:
        if error.errno in EXHAUSTED:
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            message = f"{error.strerror}; raise the limit of open files, which is {most} (`ulimit -n`)"
            raise _Failure(TurnoutError(message)) from error
        if error.errno not in FULL or error.filename is not None:
            raise
        raise _Failure(TurnoutError(f"the output cannot be written: {error.strerror}")) from error
    except KeyboardInterrupt:
        click.echo(err=True)  # past the terminal's ^C
        raise click.exceptions.Exit(INTERRUPTED) from None
