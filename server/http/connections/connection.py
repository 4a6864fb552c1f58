"""A client's connection: uvicorn's HTTP protocol, with bounds on what the client sends and on its time.

::

    nothing ──byte──▶ headers ──▶ body ──▶ nothing        what the client is sending
                                   │
                                   └── answered early, or refused: the rest is discarded, for a short time
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv6Address
from typing import Any, cast

import msgspec
from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from turnout.core import limits
from turnout.core.clock import monotonic
from turnout.server.http.connections.gentle_transport import GentleTransport
from turnout.server.http.connections.open_response import OPEN_RESPONSE, OpenResponse
from turnout.server.http.connections.outstanding import outstanding_bytes
from turnout.server.http.connections.request_size import RequestSize
from turnout.server.http.connections.upgrade import (
    asks_for_upgrade,
    new_parser,
    unread,
    without_upgrade,
)
from turnout.server.http.connections.waiting import WaitingConnections
from turnout.server.http.errors import ApiError, error_body
from turnout.server.http.pieces import SEND_PIECE
from turnout.server.http.records.record import note_error

__all__ = ["ClientLimits", "Connection"]

READ_BYTES = 64 * 2**10
"""Bytes that are read from a connection before others have their turn."""
BODY_BYTES_PER_SECOND = 16 * 2**10
"""A body that comes more slowly than this is given up once its first seconds are over."""
UNREAD = "client_not_reading"
"""Why a request ended, as the access log has it."""


@dataclass(frozen=True)
class ClientLimits:
    """How long a client may take, in seconds, and how much of a refused request is read."""

    headers: float = limits.HEADER_SECONDS.most
    body: float = limits.BODY_SECONDS.most
    reading: float = limits.READING_SECONDS.most
    """To read anything at all of what waits for it."""
    leaving: float = 5.0
    """To read the answer to a request that the client has not sent in full, or anything of what waits for it
    when the server closes."""
    discarded: int = limits.BODY.whole
    """Bytes of such a request. Most clients read no response before they have sent everything."""


class Sending(Enum):
    """What a client is sending."""

    NOTHING = auto()
    HEADERS = auto()
    BODY = auto()


class Connection(HttpToolsProtocol):
    """Refuses what is too large, too slow or not HTTP, before the application sees it."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        waiting: WaitingConnections,
        client_limits: ClientLimits,
    ) -> None:
        super().__init__(config=config, server_state=server_state, app_state=app_state)
        self._waiting, self._client_limits = waiting, client_limits
        self._sending = Sending.NOTHING
        self._since = 0.0
        """When the client began to send this, or when its last response ended."""
        self._size = RequestSize()
        self._fed = b""
        """What the parser is reading."""
        self._again: bytes | None = None
        """What is to be read by another parser."""
        self._new = True
        """No byte has come yet."""
        self._unanswered = 0
        """Requests whose headers have come, and whose responses have not ended."""
        self._refusal: ApiError | None = None
        """Why the parser was stopped."""
        self._left: float | None = None
        """When the last response was sent, after which all that comes is discarded."""
        self._discarded = 0
        self._stalled: float | None = None
        """Since when the client has read nothing of what the server has for it."""
        self._outstanding = 0
        """Bytes that the client had to read when that was last looked at."""
        self._closing: float | None = None

    @property
    def address(self) -> str:
        """The client's, without its port."""
        return self.client[0] if self.client else ""

    # -------------------------------------------------------------- what the client sends

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own way to say how much it reads at once, a quarter of a megabyte by default: with many
        # uploads, others wait for as many reads.
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        gentle = GentleTransport(cast(asyncio.Transport, transport), self._close)
        super().connection_made(gentle)
        self.client = _as_ipv4(self.client)
        self._since = monotonic()
        if not self._waiting.add(self):
            message = f"{self.address} has too many connections open without a request; close some"
            self._refuse(ApiError(429, message, headers={"Retry-After": "1"}))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._waiting.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._left is not None:
            self._discard(len(data))
            return
        if self._sending is Sending.NOTHING and not self._unanswered:
            self._begin(Sending.HEADERS)
        before, size = self._sending, self._size
        body = size.body
        more: bytes | None = data
        while more is not None:
            self._fed, self._again = more, None
            super().data_received(more)
            if (more := self._again) is not None:
                self.parser = new_parser(self)
        if self._left is not None or self.transport.is_closing():
            return
        fault = None
        if self._sending is Sending.HEADERS:
            fault = self._size.header_bytes(len(data))
        elif before is self._sending is Sending.BODY and size is self._size:  # not already the next request's
            fault = size.framed_bytes(len(data), size.body - body)
            if not self._unanswered:
                self._discard(len(data))
        if fault is not None:
            self._refuse(fault)

    def _unsupported_upgrade_warning(self) -> None:
        if asks_for_upgrade(self.parser):
            self._again = without_upgrade(self.parser, self.url, self.headers) + unread(self._fed)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin(Sending.HEADERS)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._stop_if(self._size.header(len(url), 0))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._sending is Sending.BODY:
            return  # a trailer, after the last chunk
        super().on_header(name, value)
        self._stop_if(self._size.header(len(name) + len(value)))

    def on_headers_complete(self) -> None:
        if asks_for_upgrade(self.parser):
            return  # they come again
        if self.parser.get_http_version() == "1.1" and sum(name == b"host" for name, _ in self.headers) != 1:
            # RFC 9112, 3.2: a proxy in between may have understood another host.
            self._stop_if(ApiError(400, "a request of HTTP/1.1 has one Host header"))
        if len(self.pipeline) >= limits.PIPELINED.most:
            self._stop_if(ApiError(400, f"at most {limits.PIPELINED.whole} requests may be sent ahead"))
        super().on_headers_complete()
        scope = cast(dict[str, object], self.scope)
        scope[SEND_PIECE], scope[OPEN_RESPONSE] = self.cycle.send, OpenResponse(self.cycle)
        self._unanswered += 1
        self._begin(Sending.BODY)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._size.body += len(body)

    def on_message_complete(self) -> None:
        if asks_for_upgrade(self.parser):
            return
        super().on_message_complete()
        self._begin(Sending.NOTHING)

    def _begin(self, sending: Sending) -> None:
        if sending is Sending.HEADERS:
            self._size = RequestSize()
        self._sending, self._since, self._new, self._discarded = sending, monotonic(), False, 0
        self._note()

    def _note(self) -> None:
        """Note whether the connection waits for its client, or its client for a response."""
        of_this = 1 if self._sending is Sending.BODY else 0
        if self._unanswered > of_this:
            self._waiting.discard(self)
        else:
            self._waiting.add(self)

    def _stop_if(self, fault: ApiError | None) -> None:
        """Make the parser stop: it reports what its callbacks raise to `send_400_response`."""
        if fault is not None:
            self._refusal = fault
            raise fault

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > self._client_limits.discarded:
            self.transport.abort()

    # -------------------------------------------------------------- what the server sends

    def on_response_complete(self) -> None:
        self._unanswered -= 1
        if self._left is None:
            super().on_response_complete()
            self._since = monotonic()
            self._note()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = monotonic()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled = None

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn when the parser has stopped."""
        self._refuse(self._refusal or ApiError(400, "this is not a valid HTTP request"))

    def _refuse(self, error: ApiError) -> None:
        """Answer the request that is being sent, and close; only close while another response is due."""
        if self._left is not None or self.transport.is_closing():
            return
        of_this = 1 if self._sending is Sending.BODY else 0
        answered = of_this and (not self._unanswered or self.cycle.response_started)
        if answered or self._unanswered > of_this:
            self.transport.abort()
            return
        if of_this:  # the handler, which reads the body, learns that there is no client any more
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(_response(error, self.server_state.default_headers))
        self._leave()

    def _leave(self) -> None:
        """Send no more, and read for a while what the client still sends, so that it reads the response."""
        self._left, self._discarded = monotonic(), 0
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write_eof()

    def _close(self) -> None:
        """What uvicorn calls as the transport's `close`."""
        if self._left is not None or self.transport.is_closing():
            return
        if self._sending is Sending.BODY and self.cycle.response_complete:
            self._leave()
        else:
            self._shut()

    def _shut(self) -> None:
        cast(GentleTransport, self.transport).shut()

    # -------------------------------------------------------------- time

    def give_up(self) -> None:
        """Close the connection, which waits for its client, to make room for another."""
        self.transport.abort()

    def check(self, now: float) -> None:
        """End the connection if the client has taken too long; called now and then."""
        client_limits = self._client_limits
        if self.transport.is_closing():
            self._check_closing(now)
        elif self._stalled is not None and self._reads_nothing(self._stalled, now):
            note_error(cast(Scope, self.cycle.scope), UNREAD)
            self.transport.abort()
        elif self._left is not None:
            if now - self._left > client_limits.leaving:
                self.transport.abort()
        elif self._sending is Sending.HEADERS and not self._unanswered:
            if now - self._since > client_limits.headers:
                self._refuse(ApiError(408, f"the headers took longer than {client_limits.headers:g} seconds"))
        elif self._sending is Sending.BODY:
            self._check_body(now)
        elif self._new and now - self._since > client_limits.headers:
            self.transport.abort()

    def _check_closing(self, now: float) -> None:
        """Of a connection that closes once its client has read the rest."""
        if self._closing is None or self._has_read():
            self._closing = now
        if now - self._closing > self._client_limits.leaving:
            self.transport.abort()

    def _reads_nothing(self, stalled: float, now: float) -> bool:
        """Whether the client has read nothing for too long, and has not since it was last looked at."""
        if self._has_read():
            self._stalled = now
            return False
        return now - stalled > self._client_limits.reading

    def _has_read(self) -> bool:
        """Whether the client has read something since this was last asked."""
        before, self._outstanding = self._outstanding, outstanding_bytes(self.transport)
        return self._outstanding < before

    def _check_body(self, now: float) -> None:
        elapsed = now - self._since
        if self._unanswered == 0 and elapsed > self._client_limits.leaving:
            self.transport.abort()
        elif (
            self._unanswered == 1
            and elapsed > self._client_limits.body + self._size.body / BODY_BYTES_PER_SECOND
        ):
            message = f"the body came too slowly: {self._size.body:,} bytes in {elapsed:.0f} seconds"
            self._refuse(ApiError(408, message))


def _as_ipv4(client: tuple[str, int] | None) -> tuple[str, int] | None:
    """The address and port of a client that came by IPv4, which a socket for both shows as ``::ffff:…``."""
    if client is None or not client[0].startswith("::ffff:"):
        return client
    address = IPv6Address(client[0]).ipv4_mapped
    return client if address is None else (str(address), client[1])


def _response(error: ApiError, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    body = msgspec.json.encode(error_body(error))
    own = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    named = [(name.encode(), value.encode()) for name, value in {**(error.headers or {}), **own}.items()]
    lines = [name + b": " + value + b"\r\n" for name, value in [*default_headers, *named]]
    return b"".join([STATUS_LINE[error.status], *lines, b"\r\n", body])
