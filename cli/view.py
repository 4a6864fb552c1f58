"""``turnout view``."""

from __future__ import annotations

import sys
import webbrowser
from codecs import BOM_UTF8
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from turnout.core.errors import ConfigError
from turnout.core.types.live.event import TraceFile
from turnout.server.admin.console.files import HEADERS, console_file

__all__ = ["command"]

TRACE = "trace.json"
CONSOLE = "/console/"


@click.command(name="view")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on this machine; 0: a free one.")
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page in the browser.")
def command(file: Path, port: int, browser: bool) -> None:
    """Show a recorded or simulated run in the console.

    FILE is what `turnout simulate --trace` or `turnout trace --format live` has written.
    """
    content = _checked(file)
    with _server(content, port) as server:
        url = f"http://127.0.0.1:{server.server_port}{CONSOLE}?trace={TRACE}"
        click.echo(f"{file} at {url} until Ctrl-C")
        if browser:
            webbrowser.open(url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("")


def _checked(file: Path) -> bytes:
    """The file's content. Raises ConfigError unless it is a trace."""
    content = file.read_bytes().removeprefix(BOM_UTF8)
    try:
        events = msgspec.json.decode(content, type=TraceFile).events
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{file} is no trace for the console: {error}; write one with `turnout simulate --trace FILE` "
            "or `turnout trace --format live --out FILE`"
        ) from None
    if not events:
        raise ConfigError(f"{file} has no events: nothing happened while it was recorded")
    return content


def _server(trace: bytes, port: int) -> ThreadingHTTPServer:
    """Serves the console's own files and the trace, to this machine alone. Raises ConfigError."""
    try:
        return _Server(("127.0.0.1", port), partial(_Handler, _finder(trace)))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}; choose another --port") from None


def _finder(trace: bytes) -> Callable[[str], tuple[bytes, str] | None]:
    def find(path: str) -> tuple[bytes, str] | None:
        if not path.startswith(CONSOLE):
            return None
        name = path.removeprefix(CONSOLE)
        return (trace, "application/json") if name == TRACE else console_file(name)

    return find


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of a browser that leaves, as by closing the page or loading it again."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, find: Callable[[str], tuple[bytes, str] | None], *args: object) -> None:
        self._find = find
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        found = self._find(urlsplit(self.path).path) if host in ("127.0.0.1", "localhost") else None
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content, media_type = found
        self.send_response(HTTPStatus.OK)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: what a browser asks for is no news."""
