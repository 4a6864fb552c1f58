"""A small Hugging Face hub on loopback: the endpoints that huggingface_hub asks for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """What the server offers, and what it was asked."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = "hf_right"
    requests: list[str] = field(default_factory=list)
    endpoint: str = ""

    @property
    def downloads(self) -> set[str]:
        """The files that were fetched."""
        return {
            line.rpartition("/")[2]
            for line in self.requests
            if line.startswith("GET") and "/resolve/" in line
        }


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.hub.requests.append(f"{self.command} {unquote(url.path)}")
        if url.path == "/api/models":
            self._search(parse_qs(url.query).get("search", [""])[0])
        elif url.path.startswith("/api/models/"):
            self._describe(unquote(url.path.removeprefix("/api/models/")).split("/"))
        else:
            self._file(unquote(url.path[1:]))

    do_HEAD = do_GET

    def _search(self, text: str) -> None:
        found = [name for name in self.hub.repositories if text.lower() in name.lower()]
        self._json([{"id": name, "modelId": name} for name in found])

    def _describe(self, path: list[str]) -> None:
        """/api/models/OWNER/NAME[/revision/REVISION | /tree/REVISION]"""
        name = "/".join(path[:2])
        files = self.hub.repositories.get(name)
        if files is None:
            self._error(404, "RepoNotFound")
        elif len(path) > 3 and path[3] not in ("main", COMMIT):
            self._error(404, "RevisionNotFound")
        elif path[2:3] == ["tree"]:
            self._json([self._tree_entry(file, body) for file, body in files.items()])
        else:
            self._json({"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]})

    def _tree_entry(self, file: str, body: bytes) -> dict[str, object]:
        return {"type": "file", "path": file, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}

    def _file(self, path: str) -> None:
        """/OWNER/NAME/resolve/REVISION/FILE"""
        name, _, rest = path.partition("/resolve/")
        body = self.hub.repositories.get(name, {}).get(rest.partition("/")[2])
        if name in self.hub.gated and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._error(401, "GatedRepo")
        elif body is None:
            self._error(404, "EntryNotFound")
        else:
            etag = hashlib.sha1(body).hexdigest()
            self._send(200, body, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"})

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": code})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
