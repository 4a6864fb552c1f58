"""Errors of libraries that a client's text caused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnout.core.errors import RequestError

__all__ = ["refused_by_library"]

PANIC = "PanicException"
"""What a library in Rust raises where it would end the process: no Exception, so it passes every handler."""


@contextmanager
def refused_by_library(what: str, param: str) -> Iterator[None]:
    """Turns an error of the block into a RequestError that says what was refused."""
    try:
        yield
    except Exception as error:
        raise _refusal(what, param, error) from error
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise _refusal(what, param, error) from error


def _refusal(what: str, param: str, error: BaseException) -> RequestError:
    return RequestError(f"{what}: {error!s:.200}", param)
