"""A server over an engine in this process: all the way but the socket and the second process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import msgspec

from turnout import LLM
from turnout.config import ServerConfig
from turnout.core.engine.client import TakesAtOnce
from turnout.core.types.messages import AdminCommand, Delta, Ready, Reply, Stats
from turnout.core.types.request import RequestSpec
from turnout.server.app import create_app
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.fleet.arms import Arms
from turnout.server.fleet.models.models import Models

__all__ = ["answered", "answers_over_http"]


class LocalClient:
    """An EngineClient that steps the engine whenever the event loop has nothing else to do."""

    failure: str | None = None
    restarting = False
    restarts = 0
    silence = 0.0

    def __init__(self, llm: LLM) -> None:
        self._engine = llm.engine
        self._live: dict[str, RequestStream] = {}
        self._stepping: asyncio.Task[None] | None = None
        self.ready: Ready = llm.ready
        self.replicas = [self]

    @property
    def stats(self) -> Stats:
        return self._engine.stats()

    def packed(self, prompt: list[int]) -> list[int]:
        return prompt

    async def submit(
        self, request: RequestSpec, at_once: TakesAtOnce | None = None
    ) -> AsyncGenerator[Delta, None]:
        # As it would have come through the channel.
        request = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=RequestSpec)
        for prepare in self._engine.preparation(request):
            prepare()
        self._engine.add(request)
        live = self._live[request.id] = RequestStream(request, at_once=at_once)
        if self._stepping is None:
            self._stepping = asyncio.create_task(self._step())
        try:
            while (delta := await live.next()) is not None:
                yield delta
        finally:
            del self._live[request.id]
            self._engine.abort(request.id)

    def abort(self, request_id: str, index: int | None = None) -> None:
        if request_id in self._live:
            self._live[request_id].abort(index)
        self._engine.abort(request_id, index)

    @property
    def idle(self) -> bool:
        return not self._live

    async def admin(self, command: AdminCommand) -> Reply:
        raise NotImplementedError

    async def gone(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def _step(self) -> None:
        while self._engine.busy:
            for delta in self._engine.step():
                if delta.request_id in self._live:
                    self._live[delta.request_id].deliver(delta)
            await asyncio.sleep(0)
        self._stepping = None


def answers_over_http(llm: LLM, bodies: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The choices of each of some requests to ``/v1/completions``, sent together; streams put together."""

    async def ask() -> list[list[dict[str, Any]]]:
        app = create_app(Models.of_one(Arms.of_one(LocalClient(llm), llm.tokenizer)), ServerConfig())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
            return await asyncio.gather(*(_choices(http, body) for body in bodies))

    return asyncio.run(ask())


def answered(llm: LLM, path: str, bodies: list[dict[str, Any]], model: str) -> list[httpx.Response]:
    """The responses to some requests that are sent together. model: what it is called."""

    async def ask() -> list[httpx.Response]:
        config = ServerConfig(served_model_name=model)
        transport = httpx.ASGITransport(
            create_app(Models.of_one(Arms.of_one(LocalClient(llm), llm.tokenizer), model), config)
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as http:
            return await asyncio.gather(*(http.post(path, json=body) for body in bodies))

    return asyncio.run(ask())


async def _choices(http: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    if not body.get("stream"):
        choices: list[dict[str, Any]] = response.json()["choices"]
        return choices
    whole: dict[int, dict[str, Any]] = {}
    for line in response.text.split("\n\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                so_far = whole.setdefault(choice["index"], {"text": "", "finish_reason": None})
                so_far["text"] += choice["text"]
                so_far["finish_reason"] = choice["finish_reason"] or so_far["finish_reason"]
                if "prompt_logprobs" in choice:
                    so_far["prompt_logprobs"] = choice["prompt_logprobs"]
    return [whole[index] for index in sorted(whole)]
