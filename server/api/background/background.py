"""Responses that are generated while no client waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, aclosing, contextmanager
from dataclasses import dataclass, field

import msgspec

from turnout.core import limits
from turnout.core.errors import Overloaded, RequestError, StorageError, TurnoutError
from turnout.server.api.background.event_log import EventLog, EventLogs
from turnout.server.generation.generation import Generation
from turnout.server.http.errors import error_code
from turnout.server.http.request_memory import HeldMemory
from turnout.server.renderers.responses import ResponseBody, ResponsesRenderer
from turnout.server.storage.response_store import ResponseStore

__all__ = ["Background", "end_unfinished"]

logger = logging.getLogger(__name__)

Save = Callable[[ResponseBody], Awaitable[None]]
"""Stores a response's new state."""


@dataclass
class _Task:
    generating: asyncio.Task[ResponseBody]
    finished: asyncio.Task[None] | None = None


@dataclass
class Background:
    """The tasks of all responses in the background that have not ended."""

    logs: EventLogs = field(default_factory=EventLogs)
    """The events of those that are streamed."""
    _tasks: dict[str, _Task] = field(default_factory=dict)
    _beginning: int = 0
    """Those that are being stored, before their tasks begin."""
    _closing: bool = False

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for a response, until it has been started. Raises Overloaded where there are too many."""
        there = len(self._tasks) + self._beginning
        if there >= limits.BACKGROUND.whole:
            raise Overloaded(f"{there} responses are in the background, the most there may be; retry later")
        self._beginning += 1
        try:
            yield
        finally:
            self._beginning -= 1

    def start(
        self,
        generation: Generation,
        renderer: ResponsesRenderer,
        save: Save,
        held: AbstractContextManager[HeldMemory],
        *,
        stream: bool = False,
    ) -> None:
        """Generates a response, and has its end stored, whatever it is.

        held: entered now, left at the response's end; gives the memory that the response holds. stream: its
        events are logged.
        """
        stack = ExitStack()
        memory = stack.enter_context(held)
        if stream:
            log = self.logs.begin(renderer.id)
            log.add(b"".join(renderer.opening(0, generation)))
            work = _streamed(generation, renderer, memory, log)
        else:
            work = _generated(generation, renderer, memory)
        task = _Task(asyncio.create_task(work))
        self._tasks[renderer.id] = task
        task.finished = asyncio.create_task(self._finish(task.generating, generation, renderer, save))
        task.finished.add_done_callback(lambda _: stack.close())

    async def cancel(self, id: str) -> None:
        """Returns when the response has ended, of itself or cancelled."""
        task = self._tasks.get(id)
        if task is not None:
            task.generating.cancel()
            assert task.finished is not None
            await asyncio.shield(task.finished)

    async def close(self) -> None:
        """Ends all of them."""
        self._closing = True
        await asyncio.gather(*map(self.cancel, list(self._tasks)))

    async def _finish(
        self,
        generating: asyncio.Task[ResponseBody],
        generation: Generation,
        renderer: ResponsesRenderer,
        save: Save,
    ) -> None:
        try:
            body = await self._outcome(generating, generation, renderer)
            try:
                await save(body)
            except StorageError as error:
                logger.error("the response %s is lost: %s", renderer.id, error)
                body.store = False
            if (log := self.logs.find(renderer.id)) is not None:
                log.add(renderer.last(body))
        finally:
            self.logs.end(renderer.id)
            del self._tasks[renderer.id]

    async def _outcome(
        self, generating: asyncio.Task[ResponseBody], generation: Generation, renderer: ResponsesRenderer
    ) -> ResponseBody:
        try:
            return await generating
        except asyncio.CancelledError:
            if not self._closing:
                return renderer.broken_off("cancelled", generation)
            reason = "the server was shut down"
            generation.error = "shutdown"
        except TurnoutError as error:
            reason, generation.error = str(error), error_code(error)
            generation.refused = isinstance(error, RequestError) and generation.first_token_at is None
        except Exception:
            logger.exception("a response in the background failed")
            generation.error = "internal_error"
            reason = "internal error; the server's log has the details"
        return renderer.broken_off("failed", generation, reason)


async def end_unfinished(store: ResponseStore) -> None:
    """Ends the responses that a server was generating when it ended. Raises StorageError."""
    error = {"code": "server_error", "message": "the server ended before the response had"}
    for response in await store.unfinished():
        body = {**msgspec.json.decode(response.body), "status": "failed", "error": error}
        try:
            await store.update(response.id, response.owner, "failed", msgspec.json.encode(body))
        except StorageError as lost:
            logger.error("the response %s is lost: %s", response.id, lost)


async def _generated(generation: Generation, renderer: ResponsesRenderer, memory: HeldMemory) -> ResponseBody:
    with memory.gathering() as generation.hold:
        choices = await generation.choices()
    return renderer.whole(choices, generation)


async def _streamed(
    generation: Generation, renderer: ResponsesRenderer, memory: HeldMemory, log: EventLog
) -> ResponseBody:
    with memory.gathering() as hold:
        async with aclosing(generation.deltas()) as deltas:
            async for delta in deltas:
                log.add(renderer.delta(delta, generation))
                hold(log.size)
    return renderer.ended(generation)
