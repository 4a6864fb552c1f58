"""Requests that wait for a model to be loaded, in order of arrival."""

from __future__ import annotations

import asyncio
from types import TracebackType

from starlette.requests import Request

from turnout.core.clock import Clock, monotonic
from turnout.core.errors import Overloaded

__all__ = ["Entry", "WaitingRequests", "entry_of", "note_entry"]

_KEY = "turnout.entry"

LET_IN = 256
"""So many of those that waited are prepared at once: fewer than texts may wait to be tokenized."""


class Entry:
    """What a request got in by, for as long as it is being prepared; idempotent at its end."""

    def __init__(self, waiting: WaitingRequests | None = None, waited: float = 0.0) -> None:
        """waiting: those that it waited among; None: it did not wait."""
        self.waited = waited
        """Seconds."""
        self._waiting = waiting

    def begun(self) -> None:
        """Let the next one in: the request is with the engine, or has ended."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.leave()

    def __enter__(self) -> Entry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.begun()


def note_entry(request: Request, entry: Entry) -> None:
    """Note what a request got in by."""
    request.scope[_KEY] = entry


def entry_of(request: Request) -> Entry:
    """What a request got in by."""
    entry: Entry | None = request.scope.get(_KEY)
    return entry or Entry()


class WaitingRequests:
    """A queue that is open while its model is loaded. Bounded in number, and in time."""

    def __init__(self, most: int, seconds: float, clock: Clock = monotonic) -> None:
        self.most, self.seconds = most, seconds
        self._clock = clock
        self._waiting: dict[asyncio.Future[Entry], float] = {}
        """When each came, the oldest first."""
        self.entering = 0
        """Those that have been let in, and that the engine does not know yet."""
        self.open = False
        self._closed: Exception | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def oldest(self) -> float | None:
        """When the one came that has waited longest."""
        return next(iter(self._waiting.values()), None)

    async def enter(self) -> Entry:
        """Wait for the turn. Raises Overloaded if too many wait, or after too long; what `refuse` is told."""
        if self._closed is not None:
            raise self._closed
        if len(self._waiting) >= self.most:
            raise Overloaded(
                f"{len(self._waiting):,} requests wait for the model to be loaded, the most that "
                "--max-waiting and --max-num-seqs allow; try again later"
            )
        turn: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = self._clock()
        self.let_in()
        try:
            async with asyncio.timeout(self.seconds):
                return await turn
        except TimeoutError:
            self._abandon(turn)
            raise Overloaded(
                f"the model could not be loaded within {self.seconds:g} s, the most that a request waits for "
                "it (--load-timeout); try again later"
            ) from None
        except BaseException:
            self._abandon(turn)
            raise

    def _abandon(self, turn: asyncio.Future[Entry]) -> None:
        self._waiting.pop(turn, None)
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            turn.result().begun()  # let in, but its client has left

    def let_in(self) -> None:
        """Let in those that there is room for, in order."""
        while self.open and self._waiting and self.entering < LET_IN:
            turn = next(iter(self._waiting))
            waited = self._clock() - self._waiting.pop(turn)
            if not turn.done():
                self.entering += 1
                turn.set_result(Entry(self, waited))

    def leave(self) -> None:
        self.entering -= 1
        self.let_in()

    def refuse(self, error: Exception) -> None:
        """End the wait of all with an error."""
        waiting, self._waiting = self._waiting, {}
        for turn in waiting:
            if not turn.done():
                turn.set_exception(error)

    def close(self, error: Exception) -> None:
        """Refuse all, and those that come."""
        self._closed = error
        self.refuse(error)
