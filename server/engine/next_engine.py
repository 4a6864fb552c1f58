"""When the next engine starts, in place of one that has died, and how long requests wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from turnout.core import limits
from turnout.core.clock import monotonic
from turnout.core.errors import TurnoutError
from turnout.server.engine.streams.request_stream import RequestStream

__all__ = ["NextEngine"]

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
"""Time until another attempt, where no process could be started."""
SETTLE_SECONDS, LOOK_SECONDS = 2.0, 0.02
"""How long the start waits for requests that go on elsewhere, on the cores that it needs, and how often to
look."""


class NextEngine:
    """Starts an engine when it disturbs least, and again until it can be started."""

    def __init__(self, start: Callable[[], None], give_up: Callable[[], None]) -> None:
        """start: raises OSError where there is no room for an engine now, or the TurnoutError of a launcher.
        give_up: called when requests have waited for as long as they may."""
        self._start, self._give_up = start, give_up
        self._timer: asyncio.TimerHandle | None = None
        """Of the start, or of another look or attempt."""
        self._patience: asyncio.TimerHandle | None = None
        """The end of the wait for it."""
        self.overdue = False
        """It is not there, and requests have waited for as long as they may."""

    def begin(self, pause: float, moved: Sequence[RequestStream]) -> None:
        """Start it in `pause` seconds, and once those that have `moved` elsewhere have a token there: loading
        it would slow them down."""
        self.expect()
        until = monotonic() + SETTLE_SECONDS
        self._timer = asyncio.get_running_loop().call_later(pause, self._start_when_settled, moved, until)

    def expect(self) -> None:
        """Note that requests wait from now on, if they do not yet."""
        if self._patience is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(limits.RESTART_WAIT.most, self._run_out)

    def came(self) -> None:
        """Note that an engine serves."""
        self.overdue = False
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def cancel(self) -> None:
        """Start nothing any more."""
        for timer in (self._timer, self._patience):
            if timer is not None:
                timer.cancel()

    def _start_when_settled(self, moved: Sequence[RequestStream], until: float) -> None:
        if monotonic() < until and not all(stream.over or stream.proven for stream in moved):
            self._timer = asyncio.get_running_loop().call_later(
                LOOK_SECONDS, self._start_when_settled, moved, until
            )
        else:
            self._try()

    def _try(self) -> None:
        try:
            self._start()
        except (OSError, TurnoutError) as error:  # no descriptor or memory is left, a file is being replaced
            logger.error("no engine can be started: %s; trying again in %g s", error, RETRY_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._try)

    def _run_out(self) -> None:
        self.overdue = True
        self._give_up()
