"""A proxy that lets nothing through, and remembers what was asked of it."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["RefusingProxy", "refusing"]


class RefusingProxy(socketserver.ThreadingTCPServer):
    """Answers 403 to whatever comes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hosts: set[str] = set()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that send a program's connections here, but for those to this machine."""
        url = f"http://127.0.0.1:{self.server_address[1]}"
        names = {name: url for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
        return {**names, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


class _Handler(socketserver.StreamRequestHandler):
    server: RefusingProxy

    def handle(self) -> None:
        _, target, _ = self.rfile.readline().decode().split()
        self.server.hosts.add(target.removeprefix("http://").partition(":")[0].partition("/")[0])
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextmanager
def refusing() -> Iterator[RefusingProxy]:
    with RefusingProxy() as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
