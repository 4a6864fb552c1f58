"""A front as the fleet's process sees it: a child process, the wire to it, and what it has measured."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from turnout.core.clock import monotonic
from turnout.core.interfaces.launcher import Death
from turnout.plugins.launchers.child import Child
from turnout.server.fleet.fronts.messages import (
    Begin,
    FrontMessage,
    Here,
    Measure,
    Measured,
    OwnerMessage,
    Stop,
)
from turnout.server.fleet.fronts.order import FrontOrder
from turnout.server.fleet.fronts.served import ServedFront
from turnout.server.fleet.fronts.wire import Wire

__all__ = ["Front"]

logger = logging.getLogger(__name__)

MAIN = "turnout.server.front"
"""The module that a front's process runs."""
MEASURE_SECONDS = 1.0
"""How long a front that is busy may take to tell its metrics: the ones it told last count then."""


class Front:
    """Starts the process when constructed; everything else happens in one event loop."""

    def __init__(self, order: FrontOrder) -> None:
        """Raises OSError if the system has no room for it."""
        self.number = order.number
        self.started = monotonic()
        self.serves: asyncio.Future[None] | None = None
        """Done when it takes connections; fails when it ends before."""
        self.figures = b""
        """What it has measured, as it told last."""
        self.served: ServedFront | None = None
        self._here: Callable[[], None] | None = None
        self._hears = False
        self._measured: asyncio.Future[None] | None = None
        self._death: Future[Death] = Future()
        self._wire: Wire[OwnerMessage, FrontMessage] = Wire(order.wire, FrontMessage, bind=True)
        try:
            command = [sys.executable, "-P", "-m", MAIN]
            self._child = Child(command, self._death, inherited=order.listeners)
        except OSError:
            self._wire.close()
            raise
        self._child.write_line(order.model_dump_json())

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def ended(self) -> bool:
        return self._death.done()

    def listen(self, here: Callable[[], None], ended: Callable[[Death], None]) -> None:
        """Serve it: `here` is called once it hears, `ended` is told how its process ended."""
        self._here = here
        self.serves = asyncio.get_running_loop().create_future()
        self._wire.listen(self._hear)
        asyncio.wrap_future(self._death).add_done_callback(lambda death: ended(death.result()))

    def tell(self, message: OwnerMessage) -> None:
        """Does nothing before the front hears: it is told all then."""
        if self._hears:
            self._wire.send(message)

    async def measure(self) -> bytes:
        """What it has measured by now, or by when it told last."""
        if self._measured is None and self._hears and not self.ended:
            self._measured = asyncio.get_running_loop().create_future()
            self.tell(Measure())
        if self._measured is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(MEASURE_SECONDS):
                    await asyncio.shield(self._measured)
        return self.figures

    async def stop(self, seconds: float) -> None:
        """Ask it to end; return when it has, or after so long."""
        if not self._hears:
            return
        self.tell(Stop())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(asyncio.wrap_future(self._death))

    def kill(self) -> None:
        """End the process at once. Needs no event loop."""
        self._child.kill()

    def close(self) -> None:
        """Let go of all that it had; it has ended."""
        self._wire.close()
        if self.served is not None:
            self.served.close()
        if self._measured is not None and not self._measured.done():
            self._measured.set_result(None)

    def _hear(self, message: FrontMessage) -> None:
        if isinstance(message, Here):
            assert self._here is not None
            self._hears = True
            self._here()
        elif isinstance(message, Begin):
            assert self.serves is not None
            if not self.serves.done():
                self.serves.set_result(None)
        elif isinstance(message, Measured):
            self.figures = message.figures
            if message.asked and self._measured is not None:
                self._measured.set_result(None)
                self._measured = None
        elif self.served is not None:
            self.served.hear(message)
