"""A server of the console's files and of a made-up feed, for tests that drive the page in a browser."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from made_up import MadeUp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from turnout.server.admin.console.page import show_console, show_file

Event = dict[str, Any]
Feed = Callable[[], AsyncIterator[Event]]

HELD = None
"""At the end of an answer: its stream stays open until the client leaves."""


class MadeUpServer:
    """Answers what the page asks; `changes` holds what it was asked to change."""

    def __init__(self, feed: Feed, *, key: str = "", recording: Event | None = None) -> None:
        self.feed, self.key, self.recording = feed, key, recording
        self.arms: Event | None = None
        self.history: Event = {"seconds": 15, "engines": []}
        self.loaded = {"tiny": "loaded", "other": "unloaded"}
        """The state of each model."""
        self.pinned: set[str] = set()
        self.replica_state = "serving"
        self.api_key = ""
        self.answers: dict[str, int | list[Event | None]] = {}
        """By question: the choices of a streamed answer, or the status of a refusal. Others are greeted."""
        self.changes: list[tuple[str, Event]] = []
        self.port = 0
        self.app = Starlette(
            routes=[
                Route("/console", show_console),
                Route("/console/trace.json", self._trace),
                Route("/console/{file:path}", show_file),
                Route("/admin/live", self._live),
                Route("/admin/history", self._history),
                Route("/admin/plugins", self._plugins),
                Route("/admin/replicas", self._replicas, methods=["GET", "POST"]),
                Route("/admin/models", self._on_demand, methods=["GET", "POST"]),
                Route("/admin/scheduler", self._scheduler, methods=["POST"]),
                Route("/admin/ab", self._ab, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/completions", self._chat, methods=["POST"]),
            ]
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/console"

    @contextmanager
    def running(self) -> Iterator[MadeUpServer]:
        """Serves in a thread; the port stays the same from one time to the next."""
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            self.port = listener.getsockname()[1]
            config = uvicorn.Config(self.app, log_level="error", timeout_graceful_shutdown=0, lifespan="off")
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            try:
                yield self
            finally:
                server.should_exit = True
                thread.join()

    async def _live(self, request: Request) -> Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "a valid admin key is required"}}, 401)
        return StreamingResponse(self._sent(), media_type="text/event-stream")

    async def _sent(self) -> AsyncIterator[str]:
        async for event in self.feed():
            yield f"event: live\ndata: {json.dumps(event)}\n\n"

    async def _trace(self, request: Request) -> Response:
        return JSONResponse(self.recording)

    async def _history(self, request: Request) -> Response:
        return JSONResponse(self.history)

    async def _plugins(self, request: Request) -> Response:
        names = ["fcfs", "sjf", "vtc"]
        return JSONResponse({"plugins": [{"kind": "scheduler", "name": n, "state": "ok"} for n in names]})

    async def _replicas(self, request: Request) -> Response:
        if request.method == "POST":
            self.changes.append(("replicas", await request.json()))
        replica = {"name": "0", "state": self.replica_state, "requests": 12, "tokens": 9000, "restarts": 1}
        return JSONResponse({"router": "least_requests", "router_faults": 0, "replicas": [replica]})

    async def _on_demand(self, request: Request) -> Response:
        if request.method == "POST":
            body = await request.json()
            self.changes.append(("models", body))
            if body["action"] == "unload" and body["model"] in self.pinned:
                return JSONResponse({"error": {"message": f"{body['model']!r} is pinned"}}, 409)
            self._change(**body)
        return JSONResponse({"models": [self._status(name) for name in self.loaded]})

    def _change(self, action: str, model: str) -> None:
        if action in ("load", "unload"):
            self.loaded[model] = f"{action}ing"
        else:
            (self.pinned.add if action == "pin" else self.pinned.discard)(model)

    def _status(self, name: str) -> Event:
        state = self.loaded[name]
        failed = {"reason": "the weights take 2 GiB", "retry_in": 4.5} if state == "failed" else {}
        return {
            "name": name,
            "state": state,
            "pinned": name in self.pinned,
            "waiting": 3,
            "progress": 0.42 if state == "loading" else None,
            "reason": None,
            "retry_in": 0.0,
            "loads": 2,
            "load_seconds": 1.25,
            "unloads_in": 59.5 if state == "loaded" and name not in self.pinned else None,
            **failed,
        }

    async def _scheduler(self, request: Request) -> Response:
        body = await request.json()
        self.changes.append(("scheduler", body))
        if body["name"] == "none-such":
            return JSONResponse({"error": {"message": "there is no scheduler 'none-such'"}}, 400)
        return JSONResponse({"scheduler": body["name"]})

    async def _ab(self, request: Request) -> Response:
        body = await request.json()
        self.changes.append(("ab", body))
        assert self.arms is not None
        arms = [
            {**arm, "state": "serving" if arm["name"] == body["arm"] else "stopped"}
            for arm in self.arms["arms"]
        ]
        self.arms = {**self.arms, "arms": arms}
        return JSONResponse(self.arms)

    async def _models(self, request: Request) -> Response:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            message = "a valid API key is required, as the header 'Authorization: Bearer KEY'"
            return JSONResponse({"error": {"message": message}}, 401)
        return JSONResponse({"object": "list", "data": [{"id": "tiny"}, {"id": "other"}]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.changes.append(("chat", body))
        question = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        answer = self.answers.get(question, _greeting(bool(body.get("logprobs"))))
        if isinstance(answer, int):
            return JSONResponse({"error": {"message": f"{question!r} is refused"}}, answer)
        return StreamingResponse(_streamed(answer), media_type="text/event-stream")


def _greeting(logprobs: bool) -> list[Event | None]:
    choices: list[Event | None] = []
    for text in ["Hello", ", ", "<b>you</b>", "."]:
        top = [{"token": text, "logprob": -0.1}, {"token": "Hi", "logprob": -2.4}]
        scored = {"logprobs": {"content": [{**top[0], "top_logprobs": top}]}} if logprobs else {}
        choices.append({"delta": {"content": text}, **scored})
    return choices


async def _streamed(answer: list[Event | None]) -> AsyncIterator[str]:
    for choice in answer:
        if choice is HELD:
            await asyncio.sleep(3600)
        yield f"data: {json.dumps({'choices': [{'index': 0, **(choice or {})}]})}\n\n"
        await asyncio.sleep(0.01)
    yield "data: [DONE]\n\n"


def still(*events: Event) -> Feed:
    """A feed of some events, and then of nothing."""

    async def feed() -> AsyncIterator[Event]:
        for event in events:
            yield event
        await asyncio.sleep(3600)

    return feed


def live(engine: MadeUp, *, before: float = 20.0, every: float = 0.25) -> Feed:
    """A feed of what an engine does from now on; it has run for some seconds before."""

    def warm() -> list[Event]:
        now = time.time()
        steps = engine.run(now - before, before)
        return [engine.event(now, steps)]

    past = warm()

    async def feed() -> AsyncIterator[Event]:
        yield {**past[0], "first": True, "engines": [{**past[0]["engines"][0], **_policies(engine)}]}
        while True:
            await asyncio.sleep(every)
            now = time.time()
            yield engine.event(now, engine.run(now - every, every))

    return feed


def _policies(engine: MadeUp) -> Event:
    return {"policies": {"scheduler": "fcfs", "kv": "paged:block_size=16", "kv_eviction": "lru"}}
