"""Which request a line of the log is about. Imports little: a server logs before it has loaded much."""

from __future__ import annotations

import logging
from contextvars import ContextVar

__all__ = ["LOG_FORMAT", "current_request", "mark_record"]

LOG_FORMAT = "%(levelname)s %(name)s:%(request)s %(message)s"
"""For records that `mark_record` has seen."""

current_request: ContextVar[str] = ContextVar("turnout.request", default="")
"""The name of the request that this task serves; empty outside of requests."""


def mark_record(record: logging.LogRecord) -> bool:
    """A filter that adds the request to each record: ``[ID]``, or nothing outside of requests."""
    id = current_request.get()
    record.request = f" [{id}]" if id else ""
    return True
