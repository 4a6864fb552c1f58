"""Makes faults that the engine survives, and logs, failures of a suite."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["assert_no_errors_logged"]


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def assert_no_errors_logged(logger: str) -> Iterator[None]:
    """Fails with the first error that this logger logged inside, if there is one."""
    errors = _Errors()
    logging.getLogger(logger).addHandler(errors)
    try:
        yield
    finally:
        logging.getLogger(logger).removeHandler(errors)
    assert not errors.messages, f"an error was logged: {errors.messages[0]}"
