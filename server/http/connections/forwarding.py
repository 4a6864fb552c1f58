"""Requests that a front passes on, to be answered where the fleet is: over HTTP, by a Unix socket.

The front says who the client is in a header of its own, which is taken from no client: only processes of the
server can connect to that socket.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import httptools
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from turnout.server.http.connections.open_response import OPEN_RESPONSE, OpenResponse
from turnout.server.http.disconnect import while_connected
from turnout.server.http.errors import ApiError, respond_to_error

__all__ = ["ForwardedMiddleware", "ForwardingMiddleware"]

logger = logging.getLogger(__name__)

CLIENT = b"x-turnout-client"
"""JSON: the client's address and port, or null; and the scheme that it used."""
OF_THE_CONNECTION = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"te", b"trailer", b"upgrade"}
)
"""Headers that tell nothing of the request or the response itself."""
OF_THE_SERVER = OF_THE_CONNECTION | {b"date", b"server"}
"""Those of a response that the front's own server writes."""
READ_BYTES = 2**16

Header = tuple[bytes, bytes]


class ForwardingMiddleware:
    """In a front: passes on what it does not answer itself."""

    def __init__(self, app: ASGIApp, own: Callable[[str], bool], to: str) -> None:
        """own: whether the front answers a path, as the client wrote it. to: the socket's path."""
        self._app, self._own, self._to = app, own, to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._own(scope["path"]):
            await self._app(scope, receive, send)
            return
        exchange, writer = None, None
        try:
            reader, writer = await asyncio.open_unix_connection(self._to)
            exchange = _Exchange(reader, writer, scope, receive, send)
            await exchange.run()
        except ClientDisconnect:
            pass  # the other end learns of it, as the connection to it is closed
        except OSError as error:
            if exchange is not None and exchange.begun:
                _break_off(scope, error)
                return
            gone = ApiError(503, f"the server's main process does not answer: {error}", code="unavailable")
            await (await respond_to_error(Request(scope), gone))(scope, receive, send)
        finally:
            if writer is not None:
                writer.close()


def _break_off(scope: Scope, error: OSError) -> None:
    path = scope["path"]
    logger.warning("the server's main process ended within its response to %s: %s", path, error)
    response: OpenResponse = scope[OPEN_RESPONSE]
    response.break_off()


class _Exchange:
    """A request that is passed on, and its response."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._scope, self._receive, self._send = scope, receive, send
        self._chunked = False
        self.begun = False
        """The client has got a part of the response."""

    async def run(self) -> None:
        self._writer.write(self._head())
        asking = asyncio.create_task(self._ask())
        answering = asyncio.create_task(self._answer())
        try:
            # A request that is refused at its head, as for its size, is answered before its end.
            await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
            else:
                asking.result()
                await while_connected(self._receive, _result(answering))
        finally:
            asking.cancel()
            answering.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)

    def _head(self) -> bytes:
        scope = self._scope
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        headers: list[Header] = scope["headers"]
        self._chunked = any(name == b"transfer-encoding" for name, _ in headers)
        left_out = OF_THE_CONNECTION | {CLIENT, b"expect"}
        client = json.dumps([scope["client"], scope["scheme"]]).encode()
        passed = [
            *((name, value) for name, value in headers if name not in left_out),
            *(() if any(name == b"host" for name, _ in headers) else ((b"host", b""),)),  # of HTTP/1.0
            (CLIENT, client),
            (b"connection", b"close"),
            *([(b"transfer-encoding", b"chunked")] if self._chunked else ()),
        ]
        lines = [scope["method"].encode() + b" " + target + b" HTTP/1.1", *map(b": ".join, passed)]
        return b"\r\n".join([*lines, b"", b""])

    async def _ask(self) -> None:
        """Passes the body on as it comes."""
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body, more = message.get("body", b""), message.get("more_body", False)
            with suppress(ConnectionError):  # the answer tells why
                if body:
                    self._writer.write(b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body)
                if self._chunked and not more:
                    self._writer.write(b"0\r\n\r\n")
                await self._writer.drain()

    async def _answer(self) -> None:
        """Passes the response on as it comes."""
        response = _Response()
        parser = httptools.HttpResponseParser(response)
        while not response.complete:
            if not (data := await self._reader.read(READ_BYTES)):
                raise ConnectionError("it has left")
            parser.feed_data(data)
            if response.headers_complete and not self.begun:
                self.begun = True
                headers = [each for each in response.headers if each[0].lower() not in OF_THE_SERVER]
                status = parser.get_status_code()
                await self._send({"type": "http.response.start", "status": status, "headers": headers})
            if self.begun:
                response.complete |= self._scope["method"] == "HEAD"
                body, more = response.taken(), not response.complete
                await self._send({"type": "http.response.body", "body": body, "more_body": more})


class _Response:
    """What the parser tells of a response."""

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self.headers_complete = self.complete = False
        self._body: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.headers_complete = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.complete = True

    def taken(self) -> bytes:
        """The part of the body that has come since the last call."""
        taken, self._body = b"".join(self._body), []
        return taken


async def _result(task: asyncio.Task[None]) -> None:
    await task


class ForwardedMiddleware:
    """Where the fleet is: sees the client that a front has told of."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers: Sequence[Header] = scope["headers"]
            told = next((value for name, value in headers if name == CLIENT), None)
            scope["headers"] = [each for each in headers if each[0] != CLIENT]
            client, scope["scheme"] = json.loads(told) if told is not None else (None, scope["scheme"])
            scope["client"] = None if client is None else tuple(client)
        await self._app(scope, receive, send)
