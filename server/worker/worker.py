"""A worker: an engine on this machine that serves a server elsewhere, one server after the other.

::

                 ┌─▶ loading ─ Ready ─▶ serving ─ server leaves ─▶ resetting ─ Ready ─▶ serving …
                 └── engine dies, or the next server wants another ┴──────────┘

Messages are passed on as they are encoded; only those that tell the worker something are decoded.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import msgspec

from turnout.config import EngineConfig
from turnout.core import limits
from turnout.core.clock import monotonic
from turnout.core.errors import ConfigError, EngineGone, TurnoutError
from turnout.core.interfaces.launcher import Death, EngineOrder
from turnout.core.types.messages import Failed, Ready, Reset
from turnout.core.types.messages.reading import event_reader
from turnout.core.version import own_version
from turnout.plugins.launchers.local import Local, LocalEngine
from turnout.runner.choices import changed
from turnout.server.engine.channel import ServerChannel
from turnout.server.engine.process import after_last_message
from turnout.server.engine.remote.messages import Hello, Kind, Refused, Sent, Tick, Welcome, numbered
from turnout.server.engine.streams.restart_limit import RestartLimit
from turnout.server.worker.door import Door

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5

State = Literal["loading", "serving", "resetting"]


class Worker:
    """Passes messages between a server and an engine, and replaces an engine that has died."""

    def __init__(self, door: Door, order: EngineOrder, config: EngineConfig, *, once: bool = False) -> None:
        """`once`: for a single server, with which the worker ends."""
        self._door = door
        self._order, self._config, self._once = order, config, once
        self._launcher = Local()
        self._restarts = RestartLimit(1)
        self._events = event_reader()
        self._state: State = "loading"
        self._changes = ""
        """What the server that has the engine, or had it last, wants changed of the configuration: JSON."""
        self._changed = config
        """The configuration with that."""
        self._kernels = ""
        """The CPU kernels of the other engines of the server that has this one."""
        self._followed = ""
        """Of those, what this engine was told to take, though the options leave the choice to it."""
        self._chosen = ""
        """Those that this engine has."""
        self._beyond: set[str] = set()
        """Kernels with which no engine starts here."""
        self._ready: bytes | None = None
        """What an engine of that configuration said when it was ready, for the next server."""
        self._failed: Failed | None = None
        self._server: bytes | None = None
        """The address, on the door, of the server that has the engine."""
        self._events_sent = self._commands = 0
        """Messages of events that were sent to it, and of commands that have come from it."""
        self._missed = False
        """Commands of it have not come."""
        self._waiting: dict[bytes, Hello] = {}
        """Those of servers that want it too, in order."""
        self._over: asyncio.Future[None]
        self._has_engine = False
        """One has been started, and has not been freed."""
        self._engine: LocalEngine
        self._channel: ServerChannel

    async def run(self) -> None:
        """Serve until cancelled. Raises ConfigError or EngineGone where no engine can be started."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        self._start_engine()
        loop.add_reader(self._door.fd, self._from_server)
        ticking = loop.create_task(self._tick())
        try:
            await self._over
        finally:
            ticking.cancel()
            loop.remove_reader(self._door.fd)
            self._tell(Kind.DIED, Death("has been shut down", fault=False))
            self._free_engine()

    # -------------------------------------------------------------- the engine

    def _start_engine(self) -> None:
        loop = asyncio.get_running_loop()
        self._state, self._failed = "loading", None
        engine = self._launcher.launch(self._order)
        try:
            channel = ServerChannel(engine.address.result().url)
        except OSError:
            engine.kill()
            raise
        self._engine, self._channel, self._has_engine = engine, channel, True
        follows = {"cpu_kernels": self._followed} if self._followed else {}
        engine.configure(self._changed.model_copy(update=follows).model_dump_json())
        loop.add_reader(channel.fds[0], self._from_engine)
        asyncio.wrap_future(engine.death).add_done_callback(partial(self._on_death, engine))

    def _on_death(self, engine: LocalEngine, death: asyncio.Future[Death]) -> None:
        if not death.cancelled() and engine is self._engine:
            after_last_message(self._channel, partial(self._died, engine, death.result()))

    def _free_engine(self) -> None:
        """End the engine, if there is one."""
        if not self._has_engine:
            return
        self._has_engine = False
        self._channel.leave()
        asyncio.get_running_loop().remove_reader(self._channel.fds[0])
        self._engine.kill()
        self._channel.close()

    def _from_engine(self) -> None:
        for message in self._channel.messages():
            if self._state == "serving" and self._server is not None:
                self._send(Kind.EVENTS, message)
            elif self._state != "serving":
                self._read(message)

    def _read(self, message: bytes) -> None:
        """Looks for what ends a wait."""
        for event in self._events.read(message):
            if isinstance(event, Failed):
                self._failed = event
            elif isinstance(event, Ready):
                self._chosen = event.cpu_kernels
                if self._follow_kernels():
                    return
                self._engine.connected()
                first, self._state = self._ready is None, "serving"
                self._ready = msgspec.msgpack.encode([event])
                if first:
                    logger.info("the engine is ready: %s", "; ".join(event.summary))
                if self._server is not None:
                    self._send(Kind.EVENTS, self._ready)

    def _died(self, engine: LocalEngine, death: Death) -> None:
        if self._over.done() or engine is not self._engine:
            return  # another has taken its place
        self._from_engine()
        self._free_engine()
        failed, how = self._failed, death.how
        if self._followed and self._ready is None:
            logger.error("an engine with %s kernels for a CPU %s; going back to its own", self._followed, how)
            self._beyond.add(self._followed)
            self._followed = ""
            self._start_again()
            return
        self._state, server, self._server = "loading", self._server, None
        told = death if failed is None else replace(death, how=f"failed: {failed.message}")
        is_gone = server is not None and not self._pass_on(server, Kind.DIED, msgspec.json.encode(told))
        if is_gone and self._once:
            self._over.set_result(None)
        elif self._changes and (self._ready is None or (failed is not None and failed.final)):
            logger.error("the engine that the server wanted %s; going back to the worker's own", how)
            self._changes, self._changed, self._ready = "", self._config, None
            self._start_again()
            self._admit_next()
        elif failed is not None and (failed.final or self._ready is None):
            kind = ConfigError if failed.bad_config else EngineGone
            self._over.set_exception(kind(failed.message))
        elif self._ready is None:
            self._over.set_exception(EngineGone(f"the engine process {how}"))
        else:
            self._restarts.allow(counts=False)
            pause = self._restarts.pause
            logger.error("the engine process %s; starting another in %g s", how, pause)
            asyncio.get_running_loop().call_later(pause, self._start_again)
            self._admit_next()

    def _start_again(self) -> None:
        if self._over.done():
            return
        try:
            self._start_engine()
        except OSError as error:
            self._over.set_exception(EngineGone(f"no engine can be started: {error}"))

    # -------------------------------------------------------------- the server

    def _from_server(self) -> None:
        for server, kind, content in self._door.messages():
            if kind == Kind.HELLO:
                self._greeted(server, content)
            elif server != self._server:
                if kind == Kind.BYE:
                    self._waiting.pop(server, None)
            elif kind == Kind.SENT:
                self._missed |= _sent(content) != self._commands
            elif kind == Kind.COMMAND:
                self._commands += 1
                if self._state == "serving":
                    self._channel.pass_on(content)
                    asyncio.get_running_loop().call_soon(self._from_engine)  # see ServerChannel
            elif kind == Kind.BYE:
                self._let_go("has left")

    def _greeted(self, server: bytes, content: bytes) -> None:
        """A server says hello; one that has the engine, or waits for it, is known already."""
        if server == self._server or server in self._waiting:
            return
        try:
            hello = msgspec.json.decode(content, type=Hello)
        except msgspec.DecodeError as error:
            logger.warning("what a server says is left out: it is no hello: %s", error)
            return
        if len(self._waiting) >= limits.WAITING_SERVERS.most:
            reason = f"has {len(self._waiting)} other servers waiting for its engine"
            self._door.send(server, Kind.REFUSED, msgspec.json.encode(Refused(reason)))
            return
        self._hello(server, hello)

    def _hello(self, server: bytes, hello: Hello) -> None:
        if hello.version != own_version():
            reason = (
                f"is of Turnout {own_version()}, and this server of {hello.version}; install the same version"
            )
            self._door.send(server, Kind.REFUSED, msgspec.json.encode(Refused(reason)))
            return
        self._waiting[server] = hello
        if self._server is not None and self._tell(Kind.TICK, self._now()):
            logger.warning("another server asks for the engine, and waits for the one that has it to leave")
            reason = "serves another server, which has not left"
            self._door.send(server, Kind.WAIT, msgspec.json.encode(Refused(reason)))
        self._admit_next()

    def _admit_next(self) -> None:
        """Has the first of the servers that wait get the engine, if no server has it."""
        while self._server is None and self._waiting:
            server = next(iter(self._waiting))
            hello = self._waiting.pop(server)
            if self._door.send(
                server, Kind.WELCOME, msgspec.json.encode(Welcome(own_version(), monotonic()))
            ):
                logger.info("a server has the engine")
                self._server, self._kernels = server, hello.cpu_kernels
                self._events_sent, self._commands, self._missed = 0, 0, False
                if hello.changes != self._changes:
                    self._change(hello.changes)
                elif self._ready is not None and self._follow_kernels():
                    pass
                elif self._state == "serving" and self._ready is not None:
                    self._send(Kind.EVENTS, self._ready)

    def _change(self, changes: str) -> None:
        """Replace the engine by one of another configuration, for the server that has it."""
        try:
            given = msgspec.json.decode(changes, type=dict[str, Any]) if changes else {}
            wanted = changed(self._config, given) if changes else self._config
        except (TurnoutError, msgspec.DecodeError) as error:
            server, self._server = self._server, None
            if server is not None:
                death = Death(f"cannot be changed: {error}", fault=False)
                self._pass_on(server, Kind.DIED, msgspec.json.encode(death))
            return
        logger.info("the server wants another engine: %s", changes or "that of the worker's own options")
        self._changes, self._changed, self._followed = changes, wanted, ""
        self._exchange()

    def _follow_kernels(self) -> bool:
        """Replace an engine that chose kernels other than those that the server's other engines have.

        They decide bits, so that streams can go on in one as in the other. False: it need not be, or cannot.
        """
        wanted = self._kernels if self._changed.cpu_kernels == "auto" and self._chosen else ""
        if (
            wanted in self._beyond
            or wanted == self._followed
            or (wanted == self._chosen and not self._followed)
        ):
            return False
        logger.info("the server's other engines have %s kernels for a CPU: so has this", wanted or "no")
        self._followed, self._state = wanted, "loading"
        asyncio.get_running_loop().call_soon(self._exchange)  # its channel may be being read
        return True

    def _exchange(self) -> None:
        """Start another engine in place of the one that is there, or is about to be started."""
        self._ready = None
        if self._has_engine:
            self._free_engine()
            self._start_again()

    def _let_go(self, why: str) -> None:
        """The server is gone: end its requests, and get ready for the next one."""
        logger.info("the server %s", why)
        self._server = None
        if self._once:
            self._over.set_result(None)
            return
        if self._state == "serving":
            self._state = "resetting"
            self._channel.send(Reset())
            asyncio.get_running_loop().call_soon(self._from_engine)
        self._admit_next()

    async def _tick(self) -> None:
        while True:
            self._tell(Kind.TICK, self._now())
            await asyncio.sleep(TICK_SECONDS)

    def _now(self) -> Tick:
        return Tick(monotonic(), self._events_sent, self._missed)

    def _tell(self, kind: Kind, content: Tick | Death) -> bool:
        return self._send(kind, msgspec.json.encode(content))

    def _send(self, kind: Kind, content: bytes) -> bool:
        """Send to the server that has the engine; False if it is no longer there."""
        if self._server is None:
            return False
        if kind == Kind.EVENTS:
            content = numbered(self._events_sent, content)
        if self._pass_on(self._server, kind, content):
            self._events_sent += kind == Kind.EVENTS
            return True
        if not self._over.done():
            self._let_go("is gone")
        return False

    def _pass_on(self, server: bytes, kind: Kind, content: bytes) -> bool:
        """Send to a server; False if it is not there."""
        asyncio.get_running_loop().call_soon(self._from_server)  # see `Door`
        return self._door.send(server, kind, content)


def _sent(content: bytes) -> int | None:
    """How many commands a server says that it has sent; None: that cannot be read."""
    try:
        return msgspec.json.decode(content, type=Sent).commands
    except msgspec.DecodeError:
        return None
