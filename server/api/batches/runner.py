"""Answers batches by the handlers that answer clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from turnout.core.errors import Overloaded, StorageError, TurnoutError
from turnout.core.logs import current_request
from turnout.server.api.batches.feeder import Feeder
from turnout.server.api.batches.lines import (
    NO_INPUT,
    Answer,
    Line,
    check_input,
    result_of,
    unanswered,
    unread,
)
from turnout.server.api.batches.turns import Turn, Turns
from turnout.server.api.context import Context
from turnout.server.http.access.auth import on_behalf_of
from turnout.server.http.errors import REQUEST_KEY, respond_to_error
from turnout.server.http.request_memory import RequestMemory
from turnout.server.http.telemetry.middleware import recording
from turnout.server.storage.batch_store import (
    Batch,
    BatchErrors,
    BatchStore,
    LineError,
    LineResult,
    OwnedBatch,
)
from turnout.server.storage.file_store import FileStore

__all__ = ["BatchRunner", "running_batches"]

logger = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]
TICK_SECONDS = 0.05
"""How often to look whether a line may begin."""
LOOK_SECONDS = 1.0
"""How often to look whether a batch has been cancelled or has expired."""
RETRY_SECONDS = 1.0
"""After a line found the server overloaded, or the disk full."""
PORTION, PORTION_BYTES = 32, 2**20
"""Lines that are read at once, and about their bytes."""
DECODED = 8
"""Bytes that a byte of a line takes once it is decoded."""
UNAVAILABLE = 503


@asynccontextmanager
async def running_batches(
    app: Starlette, context: Context, memory: RequestMemory, handlers: Mapping[str, Handler]
) -> AsyncGenerator[None, None]:
    """While the application serves, its batches are answered, where it takes any.

    handlers: by the path of a line.
    """
    files, batches = context.stores.files, context.stores.batches
    if files is None or batches is None:
        yield
        return
    runner = BatchRunner(app, context, memory, handlers, files, batches)
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class BatchRunner:
    """One for each server."""

    def __init__(
        self,
        app: Starlette,
        context: Context,
        memory: RequestMemory,
        handlers: Mapping[str, Handler],
        files: FileStore,
        batches: BatchStore,
    ) -> None:
        self._app, self._context, self._memory, self._handlers = app, context, memory, handlers
        self._files, self._batches = files, batches
        self._turns = Turns(Feeder(context.load, context.config.batch_in_flight), context.keys)

    async def run(self) -> None:
        """Never returns."""
        serving: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._context.batch_news.clear()
                async with self._waiting_after_errors():
                    only_to_end = not self._turns.held_back
                    if owned := await self._batches.next(self._turns.owned, only_to_end=only_to_end):
                        serving.add(self._begin(owned))
                    else:
                        await self._news(serving)
                serving = {task for task in serving if not task.done()}
        finally:
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    async def _news(self, serving: set[asyncio.Task[None]]) -> None:
        """Returns when a batch has come, is cancelled or has ended, or its key may hold it back by now."""
        come = asyncio.create_task(self._context.batch_news.wait())
        try:
            timeout = LOOK_SECONDS if serving else None
            await asyncio.wait({come, *serving}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            come.cancel()

    @asynccontextmanager
    async def _waiting_after_errors(self) -> AsyncGenerator[None, None]:
        try:
            yield
        except StorageError as error:
            logger.error("batches wait: %s", error)
            await asyncio.sleep(10 * RETRY_SECONDS)
        except Exception:
            logger.exception("batches wait")
            await asyncio.sleep(10 * RETRY_SECONDS)

    def _begin(self, owned: OwnedBatch) -> asyncio.Task[None]:
        turn = self._turns.begin(owned)
        return asyncio.create_task(self._serve_one(turn))

    async def _serve_one(self, turn: Turn) -> None:
        try:
            async with self._waiting_after_errors():
                await self._serve(turn)
        finally:  # before the task is done: else `run` would leave out a batch, and wait for news
            self._turns.end(turn)

    async def _serve(self, turn: Turn) -> None:
        """A batch to its end, from wherever it stands. Raises StorageError."""
        owned = turn.owned
        batch, path = owned.batch, self._files.path(owned.batch.input_file_id)
        try:
            if batch.status == "validating":
                batch = await self._checked(owned, path)
            if batch.status == "in_progress":
                batch = await self._answered(turn, path)
            rest = await self._late(batch, path) if batch.status == "in_progress" else []
        except StorageError:
            raise
        except FileNotFoundError:
            await self._fail(owned, [NO_INPUT])
            return
        except Exception:
            logger.exception("the batch %s failed", batch.id)
            await self._fail(owned, [LineError("internal_error", "the server's log has the details")])
            return
        if batch.status != "failed":
            ending = {"cancelling": "cancelled", "in_progress": "expired"}.get(batch.status, "completed")
            await self._batches.end(owned, ending, rest=rest)
            logger.info("the batch %s is %s", batch.id, ending)

    async def _checked(self, owned: OwnedBatch, path: Path) -> Batch:
        batch = owned.batch
        count, errors = await asyncio.to_thread(check_input, path, batch.endpoint)
        if errors:
            return await self._fail(owned, errors)
        counts = type(batch.request_counts)(count)
        now = self._batches.now()
        return await self._batches.change(
            batch.id, status="in_progress", in_progress_at=now, request_counts=counts
        )

    async def _fail(self, owned: OwnedBatch, errors: list[LineError]) -> Batch:
        """What has been answered stays in its output file."""
        return await self._batches.end(owned, "failed", BatchErrors(errors))

    async def _answered(self, turn: Turn, path: Path) -> Batch:
        """The batch when all its lines have results, or it is to end before."""
        owned = turn.owned
        lines = unread(path, await self._batches.answered(owned.batch.id))
        watching = asyncio.create_task(self._watch(owned))
        feeding = asyncio.create_task(self._feed(turn, lines))
        try:
            await asyncio.wait({watching, feeding}, return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                feeding.result()
                now = self._batches.now()
                return await self._batches.change(owned.batch.id, status="finalizing", finalizing_at=now)
        finally:
            ending = {watching, feeding, *turn.lines}
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
        return watching.result()

    async def _watch(self, owned: OwnedBatch) -> Batch:
        """Returns when the batch is to end before all of its lines have results."""
        while True:
            batch = await self._batches.get(owned.batch.id, owned.owner)
            assert batch is not None
            if batch.status != "in_progress" or self._batches.now() >= batch.expires_at:
                return batch
            self._context.batch_news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._context.batch_news.wait(), LOOK_SECONDS)

    async def _late(self, batch: Batch, path: Path) -> list[LineResult]:
        """The results of the lines that were not answered in time."""
        answered = await self._batches.answered(batch.id)
        message = f"the batch's window of {batch.completion_window} has ended"
        return await asyncio.to_thread(
            lambda: [unanswered(line, "batch_expired", message) for line in unread(path, answered)]
        )

    async def _feed(self, turn: Turn, lines: Iterator[Line]) -> None:
        """Begins line after line, and returns when all have results."""
        async with aclosing(_read(lines)) as each:
            async for line in each:
                while (held := self._begin_line(turn)) is None:
                    await asyncio.sleep(TICK_SECONDS)
                    turn.raise_of_lines()
                task = asyncio.create_task(self._line(turn, line))
                # A task that is cancelled before it begins ends, too.
                task.add_done_callback(partial(_give_back, held))
                turn.lines.add(task)
        while turn.lines:
            await asyncio.wait(turn.lines, return_when=asyncio.FIRST_COMPLETED)
            turn.raise_of_lines()

    def _begin_line(self, turn: Turn) -> ExitStack | None:
        return None if self._context.models.closing else self._turns.begin_line(turn)

    async def _line(self, turn: Turn, line: Line) -> None:
        """Answers a line, however often the server has no room for it."""
        owned = turn.owned
        answer = await self._asked(owned, line)
        while answer.status == UNAVAILABLE:
            with turn.refused_line():
                await asyncio.sleep(RETRY_SECONDS)
            answer = await self._asked(owned, line)
        await self._batches.add(owned.batch.id, [result_of(line, answer)])

    async def _asked(self, owned: OwnedBatch, line: Line) -> Answer:
        """What a client would get."""
        id, endpoint = uuid4().hex, owned.batch.endpoint
        current_request.set(id)
        request = _request(self._app, endpoint, id)
        with recording(request.scope, self._context.writers, owned.batch.id) as record:
            answer = await self._of_request(request, owned, line)
            record.status = answer.status
        return answer

    async def _of_request(self, request: Request, owned: OwnedBatch, line: Line) -> Answer:
        endpoint = owned.batch.endpoint
        try:
            with (
                self._memory.held_for(request.scope) as memory,
                on_behalf_of(request.scope, self._context.keys, owned.owner),
            ):
                memory.hold(DECODED * line.size)
                request = Request(request.scope, _sender(line.content()))
                return await _collected(await self._handlers[endpoint](request), request, memory.add)
        except Exception as error:
            if not isinstance(error, TurnoutError):
                logger.exception("a line of the batch %s failed", owned.batch.id)
            return await _collected(await respond_to_error(request, error), request, _uncounted)


def _request(app: Starlette, path: str, id: str) -> Request:
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        "client": None,
        "server": None,
        "app": app,
        REQUEST_KEY: id,
    }
    return Request(scope)


def _uncounted(size: int) -> None:
    """For errors, which are small."""


async def _collected(response: Response, request: Request, hold: Callable[[int], None]) -> Answer:
    """What the response would send. Raises Overloaded where another request takes the memory that it holds.

    hold: told the bytes of each part.
    """
    body, whole = bytearray(), False

    async def send(message: Message) -> None:
        nonlocal whole
        if message["type"] == "http.response.body":
            part = message.get("body", b"")
            hold(len(part))
            body.extend(part)
            whole = not message.get("more_body", False)

    await response(request.scope, request.receive, send)
    if not whole:
        raise Overloaded("the memory of the answer was taken for smaller requests")
    return Answer(response.status_code, bytes(body), request.scope[REQUEST_KEY])


def _sender(content: bytes) -> Callable[[], Awaitable[Message]]:
    """What an ASGI server's `receive` is; nobody disconnects."""
    parts = iter([content])

    async def receive() -> Message:
        for part in parts:
            return {"type": "http.request", "body": part, "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    return receive


def _give_back(held: ExitStack, _: asyncio.Task[None]) -> None:
    held.close()


async def _read(lines: Iterator[Line]) -> AsyncGenerator[Line, None]:
    """The lines, read in a thread, a few at a time."""

    def portion() -> list[Line]:
        found: list[Line] = []
        for line in lines:
            found.append(line)
            if len(found) == PORTION or sum(each.size for each in found) > PORTION_BYTES:
                break
        return found

    while found := await asyncio.to_thread(portion):
        for line in found:
            yield line
