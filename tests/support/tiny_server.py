"""`turnout serve` in a process of its own, mostly of `turnout-tiny`."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

__all__ = ["TinyServer", "serving"]

FAILED_ENGINE = re.compile(
    r"^ERROR \S+: the engine failed\n.*?(?=^(?:INFO|WARNING|ERROR) \S+: |\Z)", re.MULTILINE | re.DOTALL
)
"""The traceback that an engine logs of its end."""
NO_MEMORY_TO_START = re.compile(
    r"^Traceback \(most recent call last\):\n(?: .*\n)*"
    r"\w*Error: .*(?:failed to map segment|Cannot allocate memory).*$|^MemoryError$",
    re.MULTILINE,
)
"""What Python says where an engine could not load its libraries."""
PROMPT = {"prompt": "def add(a, b):", "max_tokens": 8, "temperature": 0}


class TinyServer:
    """A server, and whether it still serves others as it did at first."""

    def __init__(
        self,
        *flags: str,
        key: str | None = None,
        model: str = "turnout-tiny",
        log: Path | None = None,
        generates: bool = True,
        **options: Any,
    ) -> None:
        """log: a file to write to and read from, instead of a pipe; generates: the model has text to give."""
        command = [sys.executable, "-m", "turnout", "serve", model, "--port", "0", *flags]
        with nullcontext(subprocess.PIPE) if log is None else log.open("w") as out:
            self.popen = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True, **options)
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.output: list[str] = []
        self.process = psutil.Process(self.popen.pid)
        try:
            self.url = self._announced(log)
            self.port = int(self.url.rpartition(":")[2])
            self.tokens = self.answer() if generates else []
        except BaseException:
            self.end()
            raise

    def _announced(self, log: Path | None) -> str:
        announced = threading.Event()
        threading.Thread(target=self._read, args=(announced, log), daemon=True).start()
        assert announced.wait(120) and "Turnout serving" in self.text(), self.text()
        return self.output[-1].split()[-1]

    def _read(self, announced: threading.Event, log: Path | None) -> None:
        for line in self._piped() if log is None else self._followed(log):
            self.output.append(line)
            if "Turnout serving" in line:
                announced.set()
        announced.set()

    def _piped(self) -> Iterator[str]:
        assert self.popen.stdout is not None
        with self.popen.stdout as lines:
            yield from lines

    def _followed(self, log: Path) -> Iterator[str]:
        with log.open() as lines:
            part = ""
            while (added := lines.readline()) or self.popen.poll() is None:
                part += added
                if part.endswith("\n"):
                    yield part
                    part = ""
                elif not added:
                    time.sleep(0.05)

    def text(self) -> str:
        return "".join(self.output)

    def answer(self) -> str:
        """What the model says to `PROMPT`."""
        response = self.post("/v1/completions", PROMPT)
        assert response.status_code == 200, response.text
        text: str = response.json()["choices"][0]["text"]
        return text

    def post(self, path: str, content: object, **options: Any) -> httpx.Response:
        """`content` as JSON, or as it is if it is bytes."""
        headers = {"Content-Type": "application/json", **self.headers, **options.pop("headers", {})}
        sent = {"content": content} if isinstance(content, bytes) else {"json": content}
        return httpx.post(self.url + path, headers=headers, **{"timeout": 60, **sent, **options})

    def health(self) -> float:
        """Seconds until ``/health`` has answered."""
        begun = time.perf_counter()
        assert httpx.get(f"{self.url}/health", timeout=60).status_code == 200
        return time.perf_counter() - begun

    def check(self, *, engines_fail: bool = False) -> None:
        """The server is healthy, and another client gets the same tokens as before.

        It has logged no traceback, but for those of engines that failed, where these may.
        """
        self.health()
        assert self.answer() == self.tokens
        logged = self.text()
        if engines_fail:
            logged = NO_MEMORY_TO_START.sub("", FAILED_ENGINE.sub("", logged))
        assert "Traceback" not in logged, logged

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, content: bytes) -> bytes:
        """The whole answer to bytes on a connection of their own."""
        with self.connect() as connection:
            with suppress(OSError):  # the server has stopped reading; its answer is there all the same
                connection.sendall(content)
            return read_all(connection)

    def memory(self) -> int:
        """Bytes that the server's process takes, without its engine's."""
        return int(self.process.memory_info().rss)

    def end(self) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(20)
        finally:
            self.popen.kill()


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    parts: list[bytes] = []
    try:
        while part := connection.recv(2**16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@contextmanager
def serving(*flags: str, key: str | None = None, **options: Any) -> Iterator[TinyServer]:
    """A server with these flags; `key` is sent with its own requests."""
    server = TinyServer(*flags, key=key, **options)
    try:
        yield server
    finally:
        server.end()
