"""A server that does as it is told: streams completions and chats, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ScriptedServer:
    """`{i}` is the number of a token in an answer's text."""

    url: str = ""
    pause: float = 0.0
    """Seconds between messages."""
    tokens_per_message: int = 1
    usage: bool = True
    broken: str = ""
    """``refuse``, ``error`` in the stream, ``cut`` in the middle, or ``silent``."""
    short_by: int = 0
    """Tokens fewer than asked for."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    """That requests named in a header, in lower case."""
    most_at_once: int = 0
    _open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                length = next(int(line.split(":")[1]) for line in head if line.startswith("content-length"))
                self.paths.append(head[0].split()[1])
                self.sessions += [line[13:].strip() for line in head if line.startswith("x-session-id:")]
                self.asked.append(json.loads(await reader.readexactly(length)))
                self._open += 1
                self.most_at_once = max(self.most_at_once, self._open)
                try:
                    await self._answer(self.asked[-1], writer)
                finally:
                    self._open -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if self.broken == "refuse":
            text = json.dumps({"error": {"message": "too long by 3 tokens"}})
            writer.write(f"HTTP/1.1 400 Bad Request\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
            return
        if self.paths[-1] in ("/v1/embeddings", "/v1/rerank"):
            texts = body.get("input") or [body["query"], *body["documents"]]
            count = sum(len(text) if isinstance(text, list) else len(text.split()) for text in texts)
            found = {"data" if "input" in body else "results": texts, "usage": {"prompt_tokens": count}}
            text = json.dumps(found)
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        if self.broken == "silent":
            await asyncio.sleep(5)
        if "messages" in body:
            _event(writer, {"choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]})
        tokens = body["max_tokens"] - self.short_by
        for first in range(0, tokens, self.tokens_per_message):
            here = range(first, min(tokens, first + self.tokens_per_message))
            text = "".join(f" {token}" for token in here)
            said = {"delta": {"content": text}} if "messages" in body else {"text": text}
            _event(writer, {"choices": [{**said, "finish_reason": "length" if tokens - 1 in here else None}]})
            await asyncio.sleep(self.pause)
            if self.broken == "error":
                _event(writer, {"error": {"message": "the engine is gone"}})
            if self.broken == "cut":
                raise ConnectionError
        if self.usage:
            prompt = body.get("prompt", "")
            size = len(prompt) if isinstance(prompt, list) else len(str(prompt or body["messages"]).split())
            _event(writer, {"choices": [], "usage": {"prompt_tokens": size, "completion_tokens": tokens}})
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _event(writer: asyncio.StreamWriter, data: object) -> None:
    _chunk(writer, f"data: {json.dumps(data)}\n\n".encode())


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


@contextmanager
def serving(server: ScriptedServer) -> Iterator[ScriptedServer]:
    """In a thread of its own."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def run() -> None:
        async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
            server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
