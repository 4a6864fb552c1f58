"""Finds the requests whose masks take too long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, thread_time
from weakref import WeakKeyDictionary

from turnout.core import limits
from turnout.core.types.request import Request

__all__ = ["TOO_LONG", "MaskTime"]

SLOW_SECONDS = 0.02
"""A mask takes some tens of microseconds; what a slower one takes is counted."""
TOLERATED_SECONDS = 0.001
"""What each row may take in a step that is not called slow: other processes, too, may take time meanwhile."""
TOO_LONG = (
    f"its tokens took {limits.FORM_MASKS.most:g} s of processor time to find; give shorter texts, fewer "
    "repetitions and fewer ways to read the same text"
)


class MaskTime:
    """Measures whole steps and, after a slow one, each sequence, whose masks are then computed in turn."""

    def __init__(self) -> None:
        self.measuring = False
        """Whether sequences are measured in this step."""
        self._spent: WeakKeyDictionary[Request, float] = WeakKeyDictionary()

    @contextmanager
    def step(self, rows: int) -> Iterator[None]:
        """Measures the masks of a step with so many rows."""
        began = perf_counter()
        yield
        self.measuring = perf_counter() - began > SLOW_SECONDS + rows * TOLERATED_SECONDS

    def begin(self) -> float:
        """Returns what `since` takes."""
        return thread_time() if self.measuring else 0.0

    def since(self, begun: float) -> float:
        """Seconds of this thread's processor time; 0 in steps where sequences are not measured."""
        return thread_time() - begun if begun else 0.0

    def too_long(self, request: Request, seconds: float) -> bool:
        """Counts what the masks of a sequence took. Returns whether its request has had too much."""
        if seconds <= SLOW_SECONDS:
            return False
        spent = self._spent[request] = self._spent.get(request, 0.0) + seconds
        return spent > limits.FORM_MASKS.most
