"""Keeps a record of each request, and has it written when the request has ended."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.core.clock import monotonic
from turnout.server.http.access.auth import key_name
from turnout.server.http.errors import REQUEST_KEY
from turnout.server.http.records.record import (
    CLIENT_LEFT,
    RECORD,
    Answered,
    RequestRecord,
    Write,
    record_of,
    tracing,
)

__all__ = ["RecordMiddleware", "recording", "recording_further"]

FAILED = 500
TRACE_HEADERS = (b"traceparent", b"tracestate")
MAX_TRACE_HEADER = 2048
"""Bytes; the standard asks for 512 at least."""
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-(?P<flags>[0-9a-f]{2})(-.*)?"
)
WRITERS = "turnout.record_writers"
"""Where a request's scope has those who are told of its record."""


class RecordMiddleware:
    """Outside of all that may refuse a request, so that refusals are recorded too."""

    def __init__(
        self, app: ASGIApp, writers: Sequence[Write], *, untraced: Collection[str] | None = None
    ) -> None:
        """untraced: paths whose requests are traced only as parts of their clients' traces, such as those of
        probes; those of others are traced unless their clients say otherwise. None: none is traced.
        """
        self._app = app
        self._writers = writers
        self._untraced = untraced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with recording(scope, self._writers) as record:
            if self._untraced is not None:
                record.trace_headers = trace_headers(scope)
                is_part = "traceparent" in record.trace_headers
                record.traced = is_sampled(record.trace_headers) and (
                    is_part or scope["path"] not in self._untraced
                )
                tracing.set(record.traced)

            async def send_noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    record.status = message["status"]
                await send(message)

            await self._app(scope, receive, send_noted)


def trace_headers(scope: Scope) -> dict[str, str]:
    """Those of W3C's trace context, as far as they are short enough to be some."""
    found = {}
    for name, value in scope["headers"]:
        if name in TRACE_HEADERS and len(value) <= MAX_TRACE_HEADER:
            found[name.decode()] = value.decode("latin-1")
    return found


def is_sampled(headers: Mapping[str, str]) -> bool:
    """Whether a request is to be traced: not if its client says that its trace is not kept."""
    parent = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    return parent is None or bool(int(parent["flags"], 16) & 1)


@contextmanager
def recording(scope: Scope, writers: Sequence[Write], batch: str = "") -> Iterator[RequestRecord]:
    """A record of the request of a scope, written when the block is left; `batch`: of which it is a line."""
    record = RequestRecord(scope["method"], scope["path"], monotonic(), batch=batch)
    scope[RECORD], scope[WRITERS] = record, writers
    try:
        yield record
    except ClientDisconnect:
        record.status = record.status or CLIENT_LEFT
        raise
    except Exception:  # answered and logged outside of all middleware
        record.status, record.error = record.status or FAILED, record.error or "internal_error"
        raise
    finally:
        record.finished = monotonic()
        record.id, record.key = scope.get(REQUEST_KEY, ""), key_name(scope)
        for write in writers:
            write(record)


@contextmanager
def recording_further(scope: Scope, answer: Answered) -> Iterator[None]:
    """A record, from the same arrival, of what goes on for a request after its client has its response."""
    first = record_of(scope)
    if first is None:
        yield
        return
    further = replace(first, id=scope.get(REQUEST_KEY, ""), key=key_name(scope), background=True)
    further.answer = answer
    try:
        yield
    finally:
        further.finished = monotonic()
        for write in scope[WRITERS]:
            write(further)
