"""Lanes: places where forms are compiled, and the order in which claims get them."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from turnout.core.errors import Overloaded
from turnout.plugins.logits_processors.structured.claims import Claim

__all__ = ["Lane"]


class Lane:
    """A number of places. Who has the fewest claims here comes first, and then who came first.

    So a client that asks for much waits for itself, and another's claim passes its claims. Where too many
    wait, a client's first claim is taken all the same.
    """

    def __init__(self, places: int, most_waiting: int) -> None:
        self._free = places
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, int]] = []
        self._claims: Counter[str] = Counter()
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        """How many claims wait for a place."""
        return len(self._waiting)

    @contextmanager
    def place(self, claim: Claim) -> Iterator[bool]:
        """Waits for a place, and holds it during the block. Yields False if the claim ended before.

        Raises Overloaded if too many wait already.
        """
        with self._changed:
            full = len(self._waiting) >= self._most_waiting and self._claims[claim.client]
            if claim.bounded and full:
                raise Overloaded("too many forms of structured output are being compiled; try again later")
            self._claims[claim.client] += 1
            rank = self._claims[claim.client], next(self._numbers)
            self._waiting.append(rank)
            with claim.ends(self._wake):
                self._changed.wait_for(lambda: claim.ended or (self._free and min(self._waiting) == rank))
            self._waiting.remove(rank)
            got = not claim.ended
            self._free -= got
            self._changed.notify_all()
        try:
            yield got
        finally:
            with self._changed:
                self._free += got
                self._claims[claim.client] -= 1
                self._claims += Counter()  # forgets clients without claims
                self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
