"""The engine's process, from its start to its end, whatever ends it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import NamedTuple

from turnout.core.clock import monotonic
from turnout.core.types.messages import Command, Event, Shutdown
from turnout.server.engine.channel import ServerChannel
from turnout.server.engine.child import Child
from turnout.server.engine.death import Death

__all__ = ["EngineLaunch", "EngineProcess"]

LAST_MESSAGE_SECONDS = 0.2
"""How long to wait, once the process has ended, for a message still on its way."""
TURN_SECONDS = 0.005
"""How long messages may keep the event loop from others: hundreds come at once when it was kept itself."""


class EngineLaunch(NamedTuple):
    """What every process of one engine is started with, the first and those that take its place."""

    factory: str
    """What builds the engine, as ``MODULE:FUNCTION``."""
    log_level: str
    arm: str = ""
    """The arm of a live test that it serves, for observers."""
    replica: str = ""
    """Its name among its replicas, for observers."""

    @property
    def arguments(self) -> list[str]:
        """On the command line, after the address."""
        return [
            *("--factory", self.factory, "--log-level", self.log_level),
            *(f"--arm={self.arm}", f"--replica={self.replica}"),
        ]


class EngineProcess:
    """A process, and the channel to it. A process is never restarted: another takes its place."""

    def __init__(self, launch: EngineLaunch) -> None:
        """Raises OSError if the system has no room for it."""
        self._channel = ServerChannel()
        arguments = [self._channel.address, *launch.arguments]
        try:
            self._child = Child("turnout.server.engine.main", arguments)
        except OSError:
            self._channel.close()
            raise
        self._hear: Callable[[Event], None] | None = None
        self._over = False

    @property
    def pid(self) -> int:
        return self._child.pid

    def configure(self, config: str) -> None:
        """Tell the engine what to build: an EngineConfig as one line of JSON."""
        self._child.write_line(config)

    def listen(self, hear: Callable[[Event], None], ended: Callable[[Death], None]) -> None:
        """Pass each event to `hear` in this event loop and, at the end, tell `ended` how it ended."""
        loop = asyncio.get_running_loop()
        self._hear = hear
        loop.add_reader(self._channel.fd, self._receive)

        def end_later(death: Death) -> None:
            loop.call_later(LAST_MESSAGE_SECONDS, self._end, death, ended)

        self._child.when_ended(loop, end_later)
        self._receive()

    def connected(self) -> None:
        """Tell the channel that the engine has connected."""
        self._channel.connected()

    def send(self, command: Command) -> None:
        """Send a command; does nothing once the process has ended."""
        if not self._over:
            self._channel.send(command)
            asyncio.get_running_loop().call_soon(self._receive)  # see ServerChannel

    async def stop(self, grace: float) -> None:
        """Ask the process to leave, kill it after `grace` seconds, and clean up."""
        if not self._over:
            self._channel.send(Shutdown())
        await self._child.stop(grace)
        self._close()

    def kill(self) -> None:
        """Kill the process at once. Needs no event loop."""
        self._child.kill()
        if self._hear is None:  # else the event loop still reads
            self._close()

    # -------------------------------------------------------------- details

    def _receive(self, seconds: float = TURN_SECONDS) -> None:
        if self._hear is None or self._over:
            return
        began = monotonic()
        for events in self._channel.receive():
            for event in events:
                self._hear(event)
            if monotonic() - began > seconds:
                asyncio.get_running_loop().call_soon(self._receive)
                return

    def _end(self, death: Death, ended: Callable[[Death], None]) -> None:
        if not self._over:
            self._receive(math.inf)
            self._close()
            self._child.release()
            ended(death)

    def _close(self) -> None:
        if self._hear is not None and not self._over:
            asyncio.get_running_loop().remove_reader(self._channel.fd)
        self._over = True
        self._channel.close()
