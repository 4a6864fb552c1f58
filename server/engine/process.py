"""The engine's process, from its start to its end, whatever ends it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from turnout.core.clock import monotonic
from turnout.core.errors import PluginError, TurnoutError, as_plugin_errors, describe_error
from turnout.core.interfaces.launcher import Death, EngineAddress, EngineOrder, LaunchedEngine, Launcher
from turnout.core.plugin_faults import plugin_errors, title_of
from turnout.core.types.messages import Command, Event
from turnout.server.engine.channel import ServerChannel
from turnout.server.engine.remote.link import CONNECT_SECONDS, WorkerLink, made_pair

__all__ = ["EngineProcess", "after_last_message"]

logger = logging.getLogger(__name__)

LAST_MESSAGE_SECONDS = 0.2
"""How long to wait at most, once the process has ended, for a message still on its way."""
LOOK_SECONDS = 0.002
"""How often to look whether all messages have come."""
TURN_SECONDS = 0.005
"""How long messages may keep the event loop from others: hundreds come at once when it was kept itself."""


class EngineProcess:
    """A process, and the channel to it. A process is never restarted: another takes its place."""

    def __init__(self, launcher: Launcher, order: EngineOrder) -> None:
        """Raises OSError if the system has no room for it, PluginError if the launcher fails."""
        self._title = title_of(launcher, "launcher")
        self._channel: ServerChannel | WorkerLink | None = None
        self._hear: Callable[[Event], None] | None = None
        self._ended: Callable[[Death], None] | None = None
        self._over = False
        self._launched = self._launch(launcher, order)
        address = self._launched.address
        if address.done() and _is_here(address):
            try:
                self._channel = ServerChannel(address.result().url)
            except OSError:
                self._kill()
                raise

    def _launch(self, launcher: Launcher, order: EngineOrder) -> LaunchedEngine:
        try:
            public, secret = made_pair()
            launched = launcher.launch(order._replace(public=public, secret=secret))
        except (OSError, TurnoutError):
            raise
        except plugin_errors() as error:
            raise PluginError(f"{self._title}: launch failed: {describe_error(error)}") from error
        futures = [getattr(launched, name, None) for name in ("address", "death")]
        if isinstance(launched, LaunchedEngine) and all(isinstance(each, Future) for each in futures):
            return launched
        raise PluginError(
            f"{self._title}: launch gave {type(launched).__name__}; expected a LaunchedEngine, whose "
            "__init__ has been called"
        )

    @property
    def pid(self) -> int | None:
        """The process's id; None where it runs on another machine."""
        pid = getattr(self._launched, "pid", None)
        return pid if isinstance(pid, int) else None

    def configure(self, config: str) -> None:
        """Tell the engine what to build: an EngineConfig as one line of JSON. Raises PluginError."""
        with as_plugin_errors(f"{self._title}: configure"):
            self._launched.configure(config)

    def listen(self, hear: Callable[[Event], None], ended: Callable[[Death], None]) -> None:
        """Pass each event to `hear` in this event loop and, at the end, tell `ended` how it ended."""
        self._hear, self._ended = hear, ended
        asyncio.wrap_future(self._launched.death).add_done_callback(self._on_death)
        if self._channel is not None:
            self._read()
        else:
            asyncio.wrap_future(self._launched.address).add_done_callback(self._on_address)

    def connected(self) -> None:
        """Tell the launcher that the engine has connected."""
        self._ask(self._launched.connected)

    def send(self, command: Command) -> None:
        """Send a command; does nothing once the process has ended."""
        if not self._over and self._channel is not None:
            self._channel.send(command)
            asyncio.get_running_loop().call_soon(self._receive)  # see ServerChannel

    async def stop(self, grace: float) -> None:
        """Ask the process to leave, kill it after `grace` seconds, or at once if cancelled, and clean up."""
        try:
            if not self._over and self._channel is not None and self._channel.leave():
                with suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await asyncio.shield(asyncio.wrap_future(self._launched.death))
        finally:
            await asyncio.to_thread(self._kill)
            self._close()

    def give_up(self, how: str) -> None:
        """Take the process for lost, from outside; `how` is a clause that follows "the process"."""
        self._end(Death(how, fault=False))

    def kill(self) -> None:
        """Kill the process at once. Needs no event loop."""
        self._kill()
        if self._hear is None:  # else the event loop still reads
            self._close()

    # -------------------------------------------------------------- the launcher

    def _kill(self) -> None:
        self._ask(self._launched.kill)

    def _ask(self, call: Callable[[], None]) -> None:
        """Calls a launcher whose faults change nothing."""
        try:
            call()
        except plugin_errors() as error:
            logger.error("%s: %s failed: %s", self._title, call.__name__, describe_error(error))

    def _on_address(self, address: asyncio.Future[EngineAddress]) -> None:
        if self._over:
            return
        try:
            at = address.result()
            self._channel = ServerChannel(at.url) if at.keys is None else WorkerLink(at)
        except asyncio.CancelledError:
            self.give_up("cannot be placed: its launcher gave it up")
            return
        except plugin_errors() as error:
            self.give_up(f"cannot be placed: {describe_error(error)}")
            return
        self._read()
        if at.keys is not None:
            asyncio.get_running_loop().call_later(CONNECT_SECONDS + 0.1, self._receive)

    def _on_death(self, death: asyncio.Future[Death]) -> None:
        after_last_message(self._channel, partial(self._end, self._told(death)))

    def _told(self, death: asyncio.Future[Death]) -> Death:
        """What the launcher tells of the end; one that tells nothing of use is at fault for it."""
        try:
            told = death.result()
        except asyncio.CancelledError:
            return Death(f"ended, and {self._title} never said how", fault=True)
        except plugin_errors() as error:
            return Death(f"ended, and {self._title} failed to say how: {describe_error(error)}", fault=True)
        if isinstance(told, Death):
            return told
        return Death(f"ended, and {self._title} said {type(told).__name__}, not a Death", fault=True)

    # -------------------------------------------------------------- the channel

    def _read(self) -> None:
        assert self._channel is not None
        for fd in self._channel.fds:
            asyncio.get_running_loop().add_reader(fd, self._receive)
        self._receive()

    def _receive(self, seconds: float = TURN_SECONDS) -> None:
        if self._hear is None or self._over or self._channel is None:
            return
        began = monotonic()
        for events in self._channel.receive():
            for event in events:
                self._hear(event)
            if monotonic() - began > seconds:
                asyncio.get_running_loop().call_soon(self._receive)
                return
        if self._channel.death is not None and not self._over:
            asyncio.get_running_loop().call_soon(self._end, self._channel.death)

    def _end(self, death: Death) -> None:
        if not self._over:
            self._receive(math.inf)
            self._close()
            self._kill()  # which frees what it had
            assert self._ended is not None
            self._ended(death)

    def _close(self) -> None:
        channel, over, self._over = self._channel, self._over, True
        if channel is not None:
            if self._hear is not None and not over:
                for fd in channel.fds:
                    asyncio.get_running_loop().remove_reader(fd)
            channel.close()


def _is_here(address: Future[EngineAddress]) -> bool:
    """Whether the engine is on this machine; what a launcher gave that is no address is told later."""
    if address.cancelled() or address.exception() is not None:
        return False
    return getattr(address.result(), "keys", ()) is None


def after_last_message(channel: ServerChannel | WorkerLink | None, call: Callable[[], None]) -> None:
    """Have `call` called once all has come that an engine sent which has died.

    Streams wait for this: it takes a millisecond where the channel tells that the engine has left.
    """
    loop, until = asyncio.get_running_loop(), monotonic() + LAST_MESSAGE_SECONDS

    def look() -> None:
        if channel is None or channel.left or monotonic() > until:
            call()
        else:
            loop.call_later(LOOK_SECONDS, look)

    look()
