"""One life of the engine's process: from its start to its end, whatever ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from turnout.core.types.messages import Command, Event, Shutdown
from turnout.server.engine.channel import ServerChannel
from turnout.server.engine.child import Child

__all__ = ["EngineLife"]

LAST_WORDS = 0.2
"""Seconds to wait, once the process has ended, for a message still on its way."""


class EngineLife:
    """A process and the channel to it."""

    def __init__(self, factory: str, log_level: str) -> None:
        self._channel = ServerChannel()
        arguments = [self._channel.address, "--factory", factory, "--log-level", log_level]
        self._child = Child("turnout.server.engine.main", arguments)
        self._hear: Callable[[Event], None] | None = None
        self._over = False

    @property
    def pid(self) -> int:
        return self._child.pid

    def configure(self, config: str) -> None:
        """Tell it what to be made of: an EngineConfig as one line of JSON."""
        self._child.write_line(config)

    def listen(self, hear: Callable[[Event], None], ended: Callable[[str], None]) -> None:
        """Hand each event to `hear` and, after the last, to `ended` how it ended; in this event loop."""
        loop = asyncio.get_running_loop()
        self._hear = hear
        loop.add_reader(self._channel.fd, self._receive)

        def in_a_while(how: str) -> None:
            loop.call_later(LAST_WORDS, self._end, how, ended)

        self._child.when_ended(loop, in_a_while)
        self._receive()

    def connected(self) -> None:
        """It has been heard."""
        self._channel.connected()

    def send(self, command: Command) -> None:
        """Nothing, once it is over."""
        if not self._over:
            self._channel.send(command)
            asyncio.get_running_loop().call_soon(self._receive)  # see ServerChannel

    async def stop(self, grace: float) -> None:
        """Ask it to leave, insist after `grace` seconds, and clean up."""
        if not self._over:
            self._channel.send(Shutdown())
        await self._child.stop(grace)
        self._close()

    def kill(self) -> None:
        """At once: for when there is no event loop, or no time."""
        self._child.kill()
        if self._hear is None:  # else the event loop still reads
            self._close()

    # -------------------------------------------------------------- details

    def _receive(self) -> None:
        if self._hear is not None and not self._over:
            for event in self._channel.receive():
                self._hear(event)

    def _end(self, how: str, ended: Callable[[str], None]) -> None:
        if not self._over:
            self._receive()
            self._close()
            self._child.release()
            ended(how)

    def _close(self) -> None:
        if self._hear is not None and not self._over:
            asyncio.get_running_loop().remove_reader(self._channel.fd)
        self._over = True
        self._channel.close()
