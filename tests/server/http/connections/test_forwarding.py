"""A front's response from the fleet's process, which ends in the middle of it."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware

from turnout.config import ServerConfig
from turnout.server.http.connections.forwarding import ForwardingMiddleware
from turnout.server.http.connections.http_server import HttpServer
from turnout.server.http.connections.listening import listening

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    "half",
    [
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        HEAD + b"content-length: 10\r\n\r\nhello",
    ],
    ids=["chunked", "of a length"],
)
def test_a_response_that_breaks_off_is_a_line_in_the_log(
    half: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The log had a traceback. The client has to learn that the response isn't whole."""

    async def killed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(half)
        writer.close()

    async def broken_off(inside: str) -> str:
        app = Starlette(middleware=[Middleware(ForwardingMiddleware, lambda path: False, inside)])
        config = ServerConfig(port=0)
        with listening(config) as listener:
            server = HttpServer(app, listener, config)
            async with await asyncio.start_unix_server(killed, inside):
                serving = asyncio.create_task(server.serve())
                async with httpx.AsyncClient(base_url=listener.url, timeout=10) as client:
                    with pytest.raises(httpx.RemoteProtocolError) as broken:
                        await client.get("/admin/live")
                server.should_exit = True
                await serving
        return str(broken.value)

    caplog.set_level(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="t") as folder:  # a socket's path may have 107 characters
        assert "without sending complete" in asyncio.run(broken_off(str(Path(folder, "inside"))))
    assert [
        (record.levelname, record.exc_info, record.getMessage())
        for record in caplog.records
        if record.name != "httpx"
    ] == [
        ("WARNING", None, "the server's main process ended within its response to /admin/live: it has left")
    ]
