"""A batch comes to its end, whatever its lines meet: a server without room, an error, a key that is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout.config import ServerConfig
from turnout.core.errors import EngineGone, RequestError, StorageError
from turnout.server.api.batches import runner as runner_module
from turnout.server.api.batches.lines import Line
from turnout.server.api.batches.runner import BatchRunner
from turnout.server.http.access.auth import client_of, count_tokens
from turnout.server.http.access.key_usage import KeyUsage
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
    slow: list[str] = field(default_factory=list)
    most_at_once: int = 0

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        held_memory(request).add(10)
        count_tokens(request, lambda: 7)
        if body.get("prompt") == "late":
            self.clock.now += WINDOW
            await asyncio.sleep(10)
        if str(body.get("prompt")).startswith("never"):
            raise EngineGone("the model could not be loaded")
        if body.get("prompt") == "busy" and self.asked.count(body) < 3:
            raise EngineGone("the engine is gone")
        if body.get("prompt") == "cut off":
            return PieceResponse(self.pieces(request), "application/json", held_memory(request))
        if body.get("prompt") == "bug":
            raise KeyError("bug")
        if body.get("prompt") in ("slow", "slower"):
            self.most_at_once = max(self.most_at_once, len(self.slow) + 1)
            self.slow.append(body["prompt"])
            await asyncio.sleep(0.02)
            self.slow.pop()
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
        async with self.running() as served:
            id = await served.begin(self.owner, *prompts)
            batch = await served.ended(id, self.owner)
        return batch, self.results(batch)

    def results(self, batch: Batch) -> dict[str, Any]:
        """By prompt."""
        found = [self.files.path(id) for id in (batch.output_file_id, batch.error_file_id) if id]
        results = [json.loads(line) for path in found for line in path.read_text().splitlines()]
        return {result["custom_id"]: result for result in results}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Running, None]:
        """While a runner serves the batches."""
        batches, keys = BatchStore(self.files), Keys.for_api(self.config)
        self.context = SimpleNamespace(
            load=ServerLoad(), config=self.config, keys=keys, batch_news=asyncio.Event(), writers=()
        )
        self.context.models = SimpleNamespace(closing=False)
        memory = RequestMemory(100_000)
        app: Any = None
        runner = BatchRunner(app, self.context, memory, {URL: self.answer}, self.files, batches)
        running = asyncio.create_task(runner.run())
        try:
            async with asyncio.timeout(20):
                yield Running(self, batches)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@dataclass
class Running:
    """A runner that serves batches."""

    place: Place
    batches: BatchStore

    async def begin(self, owner: str, *prompts: str) -> str:
        """Begin a batch of these lines; returns its id."""
        lines = [
            {"custom_id": f"{prompt}-{number}" if prompt.startswith("slow") else prompt, "method": "POST"}
            | {"url": URL, "body": {"prompt": prompt}}
            for number, prompt in enumerate(prompts)
        ]
        files = self.place.files
        with files.uploaded() as new:
            new.path.write_text("\n".join(map(json.dumps, lines)))
            file = await files.add(new, owner, "in.jsonl", "batch")
        id = (await self.batches.create(owner, URL, file.id, "24h", None)).id
        if self.place.loses_input:
            await files.delete(file.id, owner)
        self.place.context.batch_news.set()
        return id

    async def get(self, id: str, owner: str) -> Batch:
        batch = await self.batches.get(id, owner)
        assert batch is not None
        return batch

    async def ended(self, id: str, owner: str) -> Batch:
        """The batch when it has ended."""
        while (batch := await self.get(id, owner)).status not in ENDED:
            await asyncio.sleep(0.01)
        return batch

    async def answered(self, id: str, owner: str, lines: int) -> None:
        """Return when so many lines of a batch have results."""
        while (await self.get(id, owner)).request_counts.completed < lines:
            await asyncio.sleep(0.01)


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


def test_a_line_that_is_nested_too_deeply_is_refused() -> None:
    """It was an internal error, whose traceback was logged."""
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(RequestError, match="nested too deeply: at most 64 levels"):
        Line(0, "a", {"prompt": nested}, 2000).content()


def test_what_comes_too_late_expires(place: Place) -> None:
    place.config = ServerConfig(batch_in_flight=1)
    batch, results = place.serve("a", "late", "b")
    assert batch.status == "expired" and batch.expired_at == batch.expires_at
    assert status(results["a"]) == 200 and results.keys() == {"a", "late", "b"}
    assert {results[name]["error"]["code"] for name in ("late", "b")} == {"batch_expired"}


def test_a_batch_that_cannot_end_is_not_full_of_lines_that_came_too_late(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those were kept before its end. Without room for its files it was completed when there was room again,
    since all of its lines had results."""
    place.config = ServerConfig(batch_in_flight=1)
    ends, end = [], BatchStore.end

    async def end_at_second_try(store: BatchStore, *args: Any, **options: Any) -> Batch:
        ends.append(await store.answered(args[0].batch.id))
        if len(ends) == 1:
            raise StorageError("the disk is full", full=True)
        return await end(store, *args, **options)

    monkeypatch.setattr(BatchStore, "end", end_at_second_try)
    batch, results = place.serve("a", "late", "b")
    assert ends == [{0}, {0}] and batch.status == "expired"
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


def test_an_input_that_is_deleted_leaves_what_has_been_answered(place: Place) -> None:
    """After a restart, or at the end of its window, its answers were lost."""

    async def serve() -> Batch:
        async with place.running() as served:
            id = await served.begin("", "a", "busy")
            await served.answered(id, "", 1)
        batch = await served.get(id, "")
        await place.files.delete(batch.input_file_id, "")
        async with place.running() as served:
            return await served.ended(id, "")

    batch = asyncio.run(serve())
    assert batch.status == "failed" and batch.errors is not None
    assert [error.code for error in batch.errors.data] == ["no_input"]
    assert place.results(batch).keys() == {"a"}
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (2, 1, 0)


def test_a_batch_that_waits_for_another_can_be_cancelled(place: Place) -> None:
    """It was being cancelled until the other had ended."""

    async def serve() -> tuple[Batch, Batch]:
        async with place.running() as served:
            ids = [await served.begin("", *prompts) for prompts in (["slow"] * 40, ["a"])]
            await served.answered(ids[0], "", 1)
            await served.batches.cancel(ids[1])
            place.context.batch_news.set()
            cancelled = await served.ended(ids[1], "")
            return cancelled, await served.get(ids[0], "")

    cancelled, other = asyncio.run(serve())
    assert (cancelled.status, other.status) == ("cancelled", "in_progress")
    assert {"prompt": "a"} not in place.asked


def test_a_batch_begins_however_the_one_before_it_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waited did so until there was news of another, where the runner looked while a batch ended:
    after it was done, before its turn was given back."""
    monkeypatch.setattr(runner_module, "LOOK_SECONDS", 0.0005)

    async def serve() -> list[Batch]:
        async with place.running() as served:
            ids = [await served.begin("", "a") for _ in range(60)]
            return [await served.ended(id, "") for id in ids]

    assert {batch.status for batch in asyncio.run(serve())} == {"completed"}


def test_a_batch_whose_model_cannot_be_loaded_holds_up_no_other_clients(place: Place) -> None:
    """All batches waited for it, for as long as its window."""

    async def serve() -> tuple[Batch, Batch]:
        async with place.running() as served:
            first = await served.begin("one", *(f"never {number}" for number in range(30)))
            other = await served.begin("two", "a", "b")
            ended = await served.ended(other, "two")
            await asyncio.sleep(0.3)
            return ended, await served.get(first, "one")

    other, first = asyncio.run(serve())
    assert (other.status, first.status) == ("completed", "in_progress")
    assert len(place.results(other)) == 2
    begun = {body["prompt"] for body in place.asked} - {"a", "b"}
    assert len(begun) <= place.config.batch_in_flight, "lines that are refused are not begun without end"


# ------------------------------------------------------------------ the limits of keys


def limited(place: Place, tmp_path: Path, limits: str) -> None:
    """Have the client `lim` a key with these limits, and the client `free` one without."""
    file = tmp_path / "keys.yaml"
    file.write_text(f"- {{name: lim, key: kl, {limits}}}\n- {{name: free, key: kf}}\n")
    place.config = ServerConfig(api_key_file=str(file))


def usage_of(place: Place, name: str) -> KeyUsage:
    key = place.context.keys.by_name(name)
    assert key is not None
    usage: KeyUsage = key.usage
    return usage


def test_lines_wait_for_the_requests_a_minute_of_their_key(place: Place, tmp_path: Path) -> None:
    """All lines of a batch were served at once, and the key was refused afterwards.

    Another client's batch is served meanwhile; what waits can be cancelled, also another batch of the client.
    """
    limited(place, tmp_path, "requests-per-minute: 5")

    async def play() -> None:
        async with place.running() as served:
            held = await served.begin("lim", *["slow"] * 12)
            later = await served.begin("lim", "late")
            await served.answered(held, "lim", 5)
            free = await served.ended(await served.begin("free", *["slow"] * 9), "free")
            assert free.status == "completed" and free.request_counts.completed == 9
            assert (await served.get(held, "lim")).request_counts.completed == 5
            usage = usage_of(place, "lim")
            assert (usage.admitted, usage.refused, usage.in_flight) == (5, 0, 0)
            await served.batches.cancel(later)
            assert (await served.ended(later, "lim")).status == "cancelled"
            await served.batches.cancel(held)
            ended = await served.ended(held, "lim")
            assert ended.status == "cancelled" and ended.request_counts.completed == 5

    asyncio.run(play())


def test_a_batch_that_waits_for_its_key_expires(place: Place, tmp_path: Path) -> None:
    limited(place, tmp_path, "requests-per-minute: 2")

    async def play() -> None:
        async with place.running() as served:
            id = await served.begin("lim", *["slow"] * 4)
            await served.answered(id, "lim", 2)
            place.clock.now += WINDOW
            batch = await served.ended(id, "lim")
        assert batch.status == "expired"
        codes = [(result["error"] or {}).get("code") for result in place.results(batch).values()]
        assert sorted(map(str, codes)) == ["None", "None", "batch_expired", "batch_expired"]

    asyncio.run(play())


def test_lines_wait_for_the_requests_in_flight_of_their_key(place: Place, tmp_path: Path) -> None:
    limited(place, tmp_path, "requests-in-flight: 2")
    place.owner = "lim"
    batch, _ = place.serve(*["slow"] * 7)
    assert batch.request_counts.completed == 7 and place.most_at_once == 2
    assert usage_of(place, "lim").admitted == 7 and usage_of(place, "lim").in_flight == 0


def test_lines_wait_for_the_tokens_a_minute_of_their_key(place: Place, tmp_path: Path) -> None:
    """A line has 7: the first tells it, and 14 are left for the others at once, and one more is too many."""
    limited(place, tmp_path, "tokens-per-minute: 21")

    async def play() -> None:
        async with place.running() as served:
            id = await served.begin("lim", *["slow"] * 6)
            await served.answered(id, "lim", 3)
            await asyncio.sleep(0.2)
            assert (await served.get(id, "lim")).request_counts.completed == 3
            assert usage_of(place, "lim").spent == 21

    asyncio.run(play())


def test_an_older_batch_goes_on_before_a_younger_one(place: Place, tmp_path: Path) -> None:
    """A batch that its key holds back is served beside another, and keeps its turn."""
    limited(place, tmp_path, "requests-in-flight: 1")

    async def play() -> None:
        async with place.running() as served:
            old = await served.begin("lim", *["slow"] * 10)
            young = await served.begin("free", *["slower"] * 200)
            await served.ended(old, "lim")
            assert 0 < (await served.get(young, "free")).request_counts.completed < 200
            await served.batches.cancel(young)

    asyncio.run(play())
