"""The engine in a process of its own, as the server sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import msgspec

from turnout.core.clock import monotonic
from turnout.core.config import EngineConfig
from turnout.core.errors import EngineError, Overloaded, RequestError
from turnout.core.messages import (
    Abort,
    AdminCommand,
    Command,
    Delta,
    Event,
    Failed,
    Ready,
    Reply,
    Shutdown,
    Stats,
    Submit,
)
from turnout.core.request import RequestSpec
from turnout.server.channel import ServerChannel
from turnout.server.child import Child

__all__ = ["FACTORY", "Dropped", "EngineGone", "ProcessClient"]

FACTORY = "turnout.runner.assembly:build_engine"
"""What builds the engine in its process: called with an EngineConfig, returns an AssembledEngine."""

GRACE = 2.0
"""Seconds the engine may take to leave when told to; longer than most steps."""
ADMIN_PATIENCE = 30.0
"""Seconds that an admin command may wait for the step to end."""
LAST_WORDS = 0.2
"""Seconds to wait, once the process has ended, for a message still on its way."""


class EngineGone(EngineError):
    """The whole engine, not one request."""


class Dropped(RequestError):
    """A request that the scheduling policy gave up."""


class ProcessClient:
    """An EngineClient. Starts the process when it is made; all else happens in one event loop.

    ::

        client = ProcessClient()        # the process starts importing
        client.configure(config)        # and now loads the model
        await client.start()            # until it is ready
        ...
        await client.close()
    """

    def __init__(self, *, factory: str = FACTORY, log_level: str = "info") -> None:
        self._channel = ServerChannel()
        arguments = [self._channel.address, "--factory", factory, "--log-level", log_level]
        self._child = Child("turnout.server.engine_process", arguments)
        self._live: dict[str, _Live] = {}
        self._replies: dict[str, asyncio.Future[Reply]] = {}
        self._ready: asyncio.Future[Ready] | None = None
        self._gone = asyncio.Event()
        self.stats: Stats | None = None
        self.failure: str | None = None

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def ready(self) -> Ready:
        assert self._ready is not None and self._ready.done(), "start() has not returned yet"
        return self._ready.result()

    # -------------------------------------------------------------- beginning and end

    def configure(self, config: EngineConfig) -> None:
        """Tell the engine what to be made of."""
        self._child.write_line(config.model_dump_json())

    async def start(self) -> Ready:
        """Wait until the engine is assembled. Raises EngineError when it cannot be."""
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()
        loop.add_reader(self._channel.fd, self._receive)
        self._child.when_ended(loop, self._ended)
        self._receive()
        return await self._ready

    async def gone(self) -> None:
        """Returns when the engine is, with `failure` set."""
        await self._gone.wait()

    def refuse(self, reason: str) -> None:
        """End all requests with this error, and take no more."""
        if self.failure is None:
            self.failure = reason
        for live in self._live.values():
            live.fail(EngineGone(reason))
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(EngineGone(reason))
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(EngineGone(reason))

    async def close(self) -> None:
        """Stop the process, gently if it can be, and clean up."""
        self.refuse("the server is shutting down")
        with contextlib.suppress(Exception):  # it may be gone
            self._channel.send(Shutdown())
        serving = self._ready is not None and not self._ready.cancelled() and not self._ready.exception()
        await self._child.stop(GRACE if serving else 0)
        if self._ready is not None:
            asyncio.get_running_loop().remove_reader(self._channel.fd)
        self._gone.set()
        self._channel.close()

    def kill(self) -> None:
        """Stop the process at once: for when there is no event loop, or no time."""
        self._child.kill()
        if self._ready is None:  # else `close` is still to come
            self._channel.close()

    # -------------------------------------------------------------- requests

    async def submit(self, request: RequestSpec) -> AsyncGenerator[Delta, None]:
        """As `EngineClient.submit` says."""
        self._check()
        if request.arrival is None:  # the engine reads it after its step, on the same clock
            request = msgspec.structs.replace(request, arrival=monotonic())
        live = self._live[request.id] = _Live(request)
        self._send(Submit(request))
        try:
            while (delta := await live.next()) is not None:
                yield delta
        finally:
            del self._live[request.id]
            if not live.over:
                self._send(Abort(request.id))

    def abort(self, request_id: str, index: int | None = None) -> None:
        """As `EngineClient.abort` says."""
        live = self._live.get(request_id)
        if live is not None:
            live.abort(index)
        self._send(Abort(request_id, index, timing=live is not None and live.awaits_timing))

    async def admin(self, command: AdminCommand) -> Reply:
        """As `EngineClient.admin` says."""
        self._check()
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies[command.id] = reply
        self._send(command)
        try:
            async with asyncio.timeout(ADMIN_PATIENCE):
                return await reply
        finally:
            del self._replies[command.id]

    def _check(self) -> None:
        if self.failure is not None:
            raise EngineGone(self.failure)

    def _send(self, command: Command) -> None:
        if self._gone.is_set():
            return
        self._channel.send(command)
        asyncio.get_running_loop().call_soon(self._receive)  # see ServerChannel

    # -------------------------------------------------------------- events

    def _receive(self) -> None:
        for event in self._channel.receive():
            self._dispatch(event)

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, Delta):
            if (live := self._live.get(event.request_id)) is not None:
                live.deliver(event)
        elif isinstance(event, Stats):
            self.stats = event
        elif isinstance(event, Reply):
            if (reply := self._replies.get(event.id)) is not None and not reply.done():
                reply.set_result(event)
        elif isinstance(event, Failed):
            self.refuse(event.message)
        elif self._ready is not None and not self._ready.done():
            self._channel.connected()
            self._ready.set_result(event)

    def _ended(self, how: str) -> None:
        asyncio.get_running_loop().call_later(LAST_WORDS, self._mourn, how)

    def _mourn(self, how: str) -> None:
        self._receive()
        self.refuse(f"the engine process {how}")
        self._gone.set()


class _Live:
    """A request whose deltas are awaited."""

    def __init__(self, request: RequestSpec) -> None:
        self._choices = request.params.n
        self._done: set[int] = set()
        self._queue: asyncio.Queue[Delta | Exception | None] = asyncio.Queue()
        self.awaits_timing = request.timing
        self.over = False
        """The engine has nothing more to do for it."""

    async def next(self) -> Delta | None:
        """The next delta; None after the last."""
        item = await self._queue.get()
        if isinstance(item, Exception):
            raise item
        return item

    def deliver(self, delta: Delta) -> None:
        if self.over:
            return
        if delta.error or delta.error_kind:
            self.fail(_error(delta))
            return
        if delta.timing is not None:
            self.awaits_timing = False
        elif delta.index in self._done:
            return
        self._queue.put_nowait(delta)
        if delta.finish_reason:
            self._finish(delta.index)

    def abort(self, index: int | None) -> None:
        for aborted in range(self._choices) if index is None else (index,):
            self._finish(aborted)

    def fail(self, error: Exception) -> None:
        """Unless only the timing is missing: the answer is complete then."""
        if not self.over:
            self.over = True
            self._queue.put_nowait(None if self._complete else error)

    def _finish(self, index: int) -> None:
        self._done.add(index)
        if self._complete and not self.awaits_timing and not self.over:
            self.over = True
            self._queue.put_nowait(None)

    @property
    def _complete(self) -> bool:
        return len(self._done) >= self._choices


def _error(delta: Delta) -> Exception:
    if delta.error_kind == "invalid":
        return RequestError(delta.error, delta.error_param)
    if delta.error_kind == "overloaded":
        return Overloaded(delta.error)
    if delta.error_kind == "timeout":
        return Dropped(delta.error or "the scheduling policy gave the request up")
    return EngineError(delta.error)
