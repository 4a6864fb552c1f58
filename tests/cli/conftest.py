"""A scripted server, with the two routes that `turnout chat` uses, and a policy that fails."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest


@dataclass
class FakeServer:
    """Answers each prompt with ``You said: …``, a word at a time."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    pause: float = 0.0
    """Seconds between words."""
    turns: list[list[dict[str, Any]]] = field(default_factory=list)
    """Answers, as deltas, which are given in this order; then it says again what was said."""
    finish_reason: str | None = None
    """Why answers end, if it is said."""
    ending: Literal["done", "silent", "broken"] = "done"
    """Answers end by [DONE], or without it, or in the middle of the body."""
    cut: threading.Event = field(default_factory=threading.Event)
    """Set when a client left in the middle of an answer."""


@pytest.fixture
def fake_server() -> Iterator[FakeServer]:
    fake = FakeServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:  # noqa: C901
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None: ...

        def do_GET(self) -> None:
            fake.keys.append(self.headers.get("Authorization"))
            self._reply(200, json.dumps({"object": "list", "data": [{"id": "fake-model"}]}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.requests.append(body)
            prompt = body["messages"][-1]["content"]
            if prompt == "refuse":
                self._reply(400, json.dumps({"error": {"message": "too long by 3 tokens"}}))
            elif prompt == "too much":
                message = "the prompt has 600 tokens, but the context length is 512; shorten the prompt"
                self._reply(400, json.dumps({"error": {"message": message}}))
            else:
                words = [{"content": f"{word} "} for word in f"You said: {prompt}".split(" ")]
                self._stream(prompt, fake.turns.pop(0) if fake.turns else words)

        def _reply(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def _stream(self, prompt: str, deltas: list[dict[str, Any]]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            if fake.ending == "broken":
                self.send_header("Content-Length", "1000000")
            self.end_headers()
            try:
                self._event({"choices": [{"delta": {"role": "assistant"}}]})
                for delta in deltas:
                    self._event({"choices": [{"delta": delta}]})
                    time.sleep(fake.pause)
                if prompt == "break":
                    self._event({"error": {"message": "the engine is gone"}})
                if fake.finish_reason is not None:
                    self._event({"choices": [{"delta": {}, "finish_reason": fake.finish_reason}]})
                if fake.ending == "done":
                    self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                fake.cut.set()

        def _event(self, data: object) -> None:
            self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())

    return Handler


MISSPELT = """
from turnout import hookimpl
from turnout.core.interfaces.scheduling import SchedulingPolicy

turnout_hook_api = 1


class Misspelt(SchedulingPolicy):
    def order(self, view):
        return view.runing + view.waiting


@hookimpl
def register_schedulers(register):
    register("misspelt", Misspelt)
"""


@pytest.fixture
def misspelt(tmp_path: Path) -> str:
    """A folder of plugins, with a scheduling policy `misspelt` that fails whenever it is asked."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "turnout_plugins.py").write_text(MISSPELT)
    return str(folder)
