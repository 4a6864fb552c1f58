"""A batch comes to its end, whatever its lines meet: a server without room, an error, a key that is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout.config import ServerConfig
from turnout.core.errors import EngineGone
from turnout.server.api.batches import runner as runner_module
from turnout.server.api.batches.runner import BatchRunner
from turnout.server.http.access.auth import client_of, count_tokens
from turnout.server.http.access.keys import Keys
from turnout.server.http.load import ServerLoad
from turnout.server.http.pieces import PieceResponse
from turnout.server.http.request_memory import RequestMemory, held_memory
from turnout.server.storage.batch_store import ENDED, WINDOW, Batch, BatchStore
from turnout.server.storage.file_store import FileStore

URL = "/v1/completions"


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


@dataclass
class Place:
    """Where a batch is served, without an engine: `answer` is what answers a line."""

    files: FileStore
    clock: Clock
    config: ServerConfig = field(default_factory=ServerConfig)
    owner: str = ""
    asked: list[Any] = field(default_factory=list)
    context: Any = None
    loses_input: bool = False

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        held_memory(request).add(10)
        count_tokens(request, lambda: 7)
        if body.get("prompt") == "late":
            self.clock.now += WINDOW
            await asyncio.sleep(10)
        if body.get("prompt") == "busy" and self.asked.count(body) < 3:
            raise EngineGone("the engine is gone")
        if body.get("prompt") == "cut off":
            return PieceResponse(self.pieces(request), "application/json", held_memory(request))
        if body.get("prompt") == "bug":
            raise KeyError("bug")
        return JSONResponse({"client": client_of(request).name})

    async def pieces(self, request: Request) -> AsyncGenerator[bytes, None]:
        """An answer; at first, the memory that it takes is taken for another request halfway."""
        yield b'{"text": '
        if len(self.asked) < 3:
            held_memory(request).give_up()
            await asyncio.sleep(10)
        yield b'"whole"}'

    def serve(self, *prompts: str) -> tuple[Batch, dict[str, Any]]:
        """The batch of these lines when it has ended, and its results by prompt."""
        return asyncio.run(self._serve(prompts))

    async def _serve(self, prompts: tuple[str, ...]) -> tuple[Batch, dict[str, Any]]:
        batches, keys = BatchStore(self.files), Keys.for_api(self.config)
        self.context = SimpleNamespace(
            load=ServerLoad(), config=self.config, keys=keys, batch_news=asyncio.Event(), writers=()
        )
        self.context.models = SimpleNamespace(closing=False)
        memory = RequestMemory(1000)
        app: Any = None
        runner = BatchRunner(app, self.context, memory, {URL: self.answer}, self.files, batches)
        lines = [
            {"custom_id": prompt, "method": "POST", "url": URL, "body": {"prompt": prompt}}
            for prompt in prompts
        ]
        with self.files.uploaded() as new:
            new.path.write_text("\n".join(map(json.dumps, lines)))
            file = await self.files.add(new, self.owner, "in.jsonl", "batch")
        id = (await batches.create(self.owner, URL, file.id, "24h", None)).id
        if self.loses_input:
            await self.files.delete(file.id, self.owner)
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(20):
            while (batch := await batches.get(id, self.owner)) is None or batch.status not in ENDED:
                await asyncio.sleep(0.01)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        found = [self.files.path(id) for id in (batch.output_file_id, batch.error_file_id) if id]
        results = [json.loads(line) for path in found for line in path.read_text().splitlines()]
        return batch, {result["custom_id"]: result for result in results}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for name in ("TICK_SECONDS", "LOOK_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(runner_module, name, 0.01)
    clock = Clock()
    with closing(FileStore(tmp_path / "batches", 10**6, clock)) as files:
        yield Place(files, clock)


def status(result: Any) -> int:
    return int(result["response"]["status_code"])


def test_lines_have_the_lowest_priority(place: Place) -> None:
    batch, results = place.serve("a", "b")
    assert batch.status == "completed" and set(map(status, results.values())) == {200}
    assert {body["priority"] for body in place.asked} == {2**31}


def test_a_line_waits_for_a_server_without_room(place: Place) -> None:
    batch, results = place.serve("a", "busy")
    assert batch.request_counts.completed == 2 and status(results["busy"]) == 200
    assert len(place.asked) == 4


def test_an_answer_that_is_cut_off_for_its_memory_is_asked_for_again(place: Place) -> None:
    batch, results = place.serve("cut off")
    assert batch.request_counts.completed == 1 and len(place.asked) == 3
    assert results["cut off"]["response"]["body"] == {"text": "whole"}


def test_an_error_costs_its_line_alone(place: Place) -> None:
    batch, results = place.serve("a", "bug", "b")
    assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 1)
    assert status(results["bug"]) == 500
    assert "the server's log" in results["bug"]["response"]["body"]["error"]["message"]


def test_what_comes_too_late_expires(place: Place) -> None:
    place.config = ServerConfig(batch_in_flight=1)
    batch, results = place.serve("a", "late", "b")
    assert batch.status == "expired" and batch.expired_at == batch.expires_at
    assert status(results["a"]) == 200 and results.keys() == {"a", "late", "b"}
    assert {results[name]["error"]["code"] for name in ("late", "b")} == {"batch_expired"}


def test_lines_count_for_the_key_that_asked(place: Place) -> None:
    place.config = ServerConfig(api_key=("secret",))
    (key,) = Keys.for_api(place.config)
    place.owner = key.name
    _, results = place.serve("a", "b")
    assert results["a"]["response"]["body"] == {"client": key.name}
    (key,) = place.context.keys
    assert key.usage.spent == 14 and key.usage.in_flight == 0


def test_a_key_that_is_gone_gets_no_more_answers(place: Place) -> None:
    place.config, place.owner = ServerConfig(api_key=("secret",)), "key-of-before"
    batch, results = place.serve("a")
    assert batch.request_counts.failed == 1 and status(results["a"]) == 401 and not place.asked


def test_an_input_that_is_gone_fails_the_batch(place: Place) -> None:
    place.loses_input = True
    batch, _ = place.serve("a")
    assert batch.status == "failed" and batch.errors is not None
    assert [error.code for error in batch.errors.data] == ["no_input"]
