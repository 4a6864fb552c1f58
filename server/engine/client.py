"""The engine in a process of its own, as the server sees it: one that survives its process.

What a client has received is known here. So when the process dies, another takes its place and every request
goes on after the last token that was delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import msgspec

from turnout.config import EngineConfig
from turnout.core.clock import monotonic
from turnout.core.errors import ConfigError, EngineGone, TurnoutError
from turnout.core.types.messages import (
    Abort,
    AdminCommand,
    Command,
    Delta,
    Event,
    Failed,
    Ready,
    Reply,
    Stats,
    Submit,
)
from turnout.core.types.request import RequestSpec
from turnout.server.engine.admin_journal import StandingOrders
from turnout.server.engine.process import EngineLife
from turnout.server.engine.request_streams import LiveRequests
from turnout.server.engine.restart_limit import Restarts

__all__ = ["FACTORY", "ProcessClient"]

logger = logging.getLogger(__name__)

FACTORY = "turnout.runner.assembly:build_engine"
"""What builds the engine in its process: called with an EngineConfig, returns an AssembledEngine."""

GRACE = 2.0
"""Seconds the engine may take to leave when told to; longer than most steps."""
ADMIN_TIMEOUT_SECONDS = 30.0
"""Seconds that an admin command may wait for the step to end."""


class ProcessClient:
    """An EngineClient. Starts the process when it is made; all else happens in one event loop.

    ::

        client = ProcessClient()        # the process starts importing
        client.configure(config)        # and now loads the model
        await client.start()            # until it is ready
        ...
        await client.close()
    """

    def __init__(self, *, factory: str = FACTORY, log_level: str = "info", restarts: int = 0) -> None:
        self._factory, self._log_level = factory, log_level
        self._life = EngineLife(factory, log_level)
        self._restarts = Restarts(restarts)
        self._config = ""
        self._orders = StandingOrders()
        self._live = LiveRequests()
        self._replies: dict[str, asyncio.Future[Reply]] = {}
        self._ready: asyncio.Future[Ready] | None = None
        self._serving = False
        self._cause: Failed | None = None
        """What the engine said before it died."""
        self._gone = asyncio.Event()
        self._heard = 0.0
        """When it last said anything."""
        self.stats: Stats | None = None
        self.failure: str | None = None

    @property
    def pid(self) -> int:
        return self._life.pid

    @property
    def ready(self) -> Ready:
        assert self._ready is not None and self._ready.done(), "start() has not returned yet"
        return self._ready.result()

    @property
    def restarting(self) -> bool:
        """The engine has been lost, and another one is on its way."""
        return self._ready is not None and self._ready.done() and not self._serving and self.failure is None

    @property
    def restarts(self) -> int:
        """How often that was so."""
        return self._restarts.count

    @property
    def silence(self) -> float:
        """As `EngineClient.silence` says."""
        since = [live.spec.arrival or 0.0 for live in self._live.owed]
        if not since or not self._serving:
            return 0.0
        return monotonic() - max(self._heard, min(since))

    @property
    def idle(self) -> bool:
        """The engine has nothing to do: all that it was asked for has come, though maybe not been taken."""
        return not self._live.owed and not self._replies

    # -------------------------------------------------------------- beginning and end

    def configure(self, config: EngineConfig) -> None:
        """Tell the engine what to be made of."""
        self._config = config.model_dump_json()
        self._life.configure(self._config)

    async def start(self) -> Ready:
        """Wait until the engine is assembled.

        Raises EngineError when it cannot be, ConfigError when that is the configuration's fault.
        """
        self._ready = asyncio.get_running_loop().create_future()
        self._life.listen(self._dispatch, self._ended)
        return await self._ready

    async def gone(self) -> None:
        """Returns when the engine is, for good, with `failure` set."""
        await self._gone.wait()

    def refuse(self, reason: str, kind: type[TurnoutError] = EngineGone) -> None:
        """End all requests with this error, and take no more. `kind` is for whoever waits in `start`."""
        if self.failure is None:
            self.failure = reason
        self._live.fail(EngineGone(reason))
        self._fail_replies(reason)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(kind(reason))

    async def close(self) -> None:
        """Stop the process, gently if it can be, and clean up."""
        self.refuse("the server is shutting down")
        self._gone.set()
        await self._life.stop(GRACE if self._serving else 0)

    def kill(self) -> None:
        """Stop the process at once: for when there is no event loop, or no time."""
        self._restarts.forbid()
        self._life.kill()

    # -------------------------------------------------------------- requests

    async def submit(self, request: RequestSpec) -> AsyncGenerator[Delta, None]:
        """As `EngineClient.submit` says."""
        self._check()
        if request.arrival is None:  # the engine reads it after its step, on the same clock
            request = msgspec.structs.replace(request, arrival=monotonic())
        live = self._live.add(request)
        self._send(Submit(request))  # or, if an engine is on its way, when it has come
        try:
            while (delta := await live.next()) is not None:
                yield delta
        finally:
            self._live.remove(request.id)
            if not live.over:
                self._send(Abort(request.id))
                self._try_next(after=request.id)

    def abort(self, request_id: str, index: int | None = None) -> None:
        """As `EngineClient.abort` says."""
        live = self._live.get(request_id)
        if live is not None:
            live.abort(index)
        self._send(Abort(request_id, index, timing=live is not None and live.awaits_timing))

    async def admin(self, command: AdminCommand) -> Reply:
        """As `EngineClient.admin` says."""
        self._check()
        if self.restarting:
            raise EngineGone("the engine is being restarted; ask again")
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies[command.id] = reply
        self._send(command)
        try:
            async with asyncio.timeout(ADMIN_TIMEOUT_SECONDS):
                answer = await reply
        finally:
            del self._replies[command.id]
        if not answer.error_kind:
            self._orders.note(command)
        return answer

    def _check(self) -> None:
        if self.failure is not None:
            raise EngineGone(self.failure)

    def _send(self, command: Command) -> None:
        if self._serving:
            self._life.send(command)

    def _fail_replies(self, reason: str) -> None:
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(EngineGone(reason))

    # -------------------------------------------------------------- events

    def _dispatch(self, event: Event) -> None:
        self._heard = monotonic()
        if isinstance(event, Delta):
            if (live := self._live.get(event.request_id)) is not None:
                live.deliver(event)
                self._try_next(after=event.request_id)
        elif isinstance(event, Stats):
            self.stats = event
        elif isinstance(event, Reply):
            if (reply := self._replies.get(event.id)) is not None and not reply.done():
                reply.set_result(event)
        elif isinstance(event, Failed):
            self._cause = event
            if event.final or not self._serving:
                self.refuse(event.message, ConfigError if event.asked_wrongly else EngineGone)
        else:
            self._begin(event)

    def _begin(self, ready: Ready) -> None:
        """The engine is assembled: the first one, or one that takes over."""
        self._life.connected()
        self._serving = True
        assert self._ready is not None
        if not self._ready.done():
            self._ready.set_result(ready)
            return
        logger.warning("another engine has taken over; %d requests go on", len(self._live))
        for order in self._orders.commands():
            self._send(order)
        for request in self._live.hand_over():
            self._send(Submit(request))

    def _try_next(self, after: str) -> None:
        """The next of those that may have killed an engine, if `after` was being tried."""
        if self._serving and (suspect := self._live.next_suspect(after)) is not None:
            self._send(Submit(suspect))

    # -------------------------------------------------------------- when the engine dies

    def _ended(self, how: str) -> None:
        cause, self._cause = self._cause, None
        reason = cause.message if cause else f"the engine process {how}"
        served, self._serving = self._serving, False
        if self._gone.is_set():
            return
        if served and self.failure is None and not (cause and cause.final) and self._restarts.allow():
            self._start_another(reason)
        else:
            self.refuse(reason)
            self._gone.set()

    def _start_another(self, reason: str) -> None:
        logger.error("%s; starting another engine for %d requests", reason, len(self._live))
        self._fail_replies(f"{reason}; it is being restarted, ask again")
        self._live.blame()
        self._life = EngineLife(self._factory, self._log_level)
        self._life.configure(self._config)
        self._life.listen(self._dispatch, self._ended)
