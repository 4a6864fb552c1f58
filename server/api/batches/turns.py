"""Decides which batch's line begins next: the oldest batch's whose key lets it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from turnout.server.api.batches.feeder import Feeder
from turnout.server.http.access.keys import Keys
from turnout.server.storage.batch_store import OwnedBatch

__all__ = ["Turn", "Turns"]


@dataclass(eq=False)
class Turn:
    """A batch that is being served."""

    owned: OwnedBatch
    lines: set[asyncio.Task[None]] = field(default_factory=set)
    """Those that are being answered, and those whose end has not been looked at."""
    limited: bool = False
    """Its next line waits for a limit of its key."""
    refused: int = 0
    """Its lines that the server had no room for, such as for a model that cannot be loaded."""

    @property
    def held_back(self) -> bool:
        """Other batches may be served meanwhile."""
        return self.limited or self.refused > 0

    @property
    def in_flight(self) -> int:
        return sum(not line.done() for line in self.lines) - self.refused

    @contextmanager
    def refused_line(self) -> Iterator[None]:
        """While one of its lines waits until it is asked for again."""
        self.refused += 1
        try:
            yield
        finally:
            self.refused -= 1

    def raise_of_lines(self) -> None:
        """Forgets the lines that are done. Raises what one of them raised."""
        for line in [line for line in self.lines if line.done()]:
            self.lines.discard(line)
            line.result()


class Turns:
    """The batches that are being served, oldest first.

    The next batch begins when one has ended, or when it is held back: by its key, or by a server that has no
    room for it. Then the batch of another client begins beside it, and waits again as soon as the older batch
    may go on.
    """

    def __init__(self, feeder: Feeder, keys: Keys) -> None:
        self._feeder, self._keys = feeder, keys
        self._turns: list[Turn] = []

    @property
    def owned(self) -> list[OwnedBatch]:
        return [turn.owned for turn in self._turns]

    @property
    def held_back(self) -> bool:
        """Whether another batch may begin: none is being served, or all of them are held back."""
        return all(turn.held_back for turn in self._turns)

    def begin(self, owned: OwnedBatch) -> Turn:
        """Begins the turn of a batch."""
        turn = Turn(owned)
        self._turns.append(turn)
        self._turns.sort(key=lambda each: each.owned.batch.created_at)
        return turn

    def end(self, turn: Turn) -> None:
        """Ends the turn of a batch."""
        self._turns.remove(turn)

    def begin_line(self, turn: Turn) -> ExitStack | None:
        """What the next line takes of its key, to be closed at its end; None: the line has to wait.

        A key that is gone holds nothing back: its lines are refused.
        """
        held, key = ExitStack(), self._keys.by_name(turn.owned.owner)
        turn.limited = key is not None and not key.usage.has_room
        if turn.held_back or not self._is_next(turn):
            return None
        # Its own lines that are refused count: else all of them would be begun, one by one.
        if not self._feeder.has_room(turn.refused + sum(each.in_flight for each in self._turns)):
            return None
        if key is not None:
            held.enter_context(key.usage.request())
        return held

    def _is_next(self, turn: Turn) -> bool:
        return turn is next(each for each in self._turns if not each.held_back)
