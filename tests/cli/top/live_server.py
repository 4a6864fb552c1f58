"""A stand-in for a server that is watched: `GET /admin/live`, scripted."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

from turnout.core.types.live.event import LiveEvent
from turnout.server.admin.live.parts import encoded

__all__ = ["LiveServer"]


class LiveServer:
    """Sends each client the events so far, and those that come; ``None`` closes the connections."""

    def __init__(self) -> None:
        self.key = "admin"
        self.status = 200
        self.told: list[LiveEvent] = []
        self.keys: list[str | None] = []
        self._clients: list[Queue[bytes | None]] = []
        self._port = 0
        self.start()

    def start(self) -> None:
        self._http = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._http.daemon_threads = True
        self._port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        for client in self._clients:
            client.put(None)
        self._clients = []
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def tell(self, event: LiveEvent) -> None:
        self.told.append(event)
        for client in self._clients:
            for data in encoded(event):
                client.put(data)

    def connect(self) -> Queue[bytes | None]:
        queue: Queue[bytes | None] = Queue()
        for event in self.told:
            for data in encoded(event):
                queue.put(data)
        self._clients.append(queue)
        return queue


def _handler(server: LiveServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

        def do_GET(self) -> None:
            key = self.headers.get("Authorization")
            server.keys.append(key)
            if self.path != "/admin/live":
                self._refuse(404, "no such path")
            elif key != f"Bearer {server.key}":
                self._refuse(401, "a valid admin key is required \x1b]0;pwned\x07")
            elif server.status != 200:
                self._refuse(server.status, "not now")
            else:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                events = server.connect()
                while (data := events.get()) is not None:
                    self.wfile.write(data)
                    self.wfile.flush()

        def _refuse(self, status: int, message: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"error": {"message": message}}).encode())

    return Handler
