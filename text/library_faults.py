"""Errors of libraries that a client's text caused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnout.core.errors import RequestError

__all__ = ["is_fault", "refused_by_library"]

PANIC = "PanicException"
"""What a library in Rust raises where it would end the process: no Exception, so it passes every handler."""


@contextmanager
def refused_by_library(what: str, param: str) -> Iterator[None]:
    """Turns an error of the block into a RequestError that says what was refused."""
    try:
        yield
    except BaseException as error:
        if not is_fault(error):
            raise
        raise RequestError(f"{what}: {error!s:.200}", param) from error


def is_fault(error: BaseException) -> bool:
    """Whether an error is a library's, not an interrupt or the like."""
    return isinstance(error, Exception) or type(error).__name__ == PANIC
