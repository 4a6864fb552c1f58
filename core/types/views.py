"""What a scheduling policy gets for a step: the requests' views, and questions that it can ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from turnout.core.types.request import RequestView

__all__ = ["KVView", "RequestView", "View"]  # RequestView, which is defined elsewhere, for plugins


class KVView(NamedTuple):
    """KV memory as the step begins, in token positions."""

    free: int
    """Positions that could be reserved."""
    capacity: int
    """Positions of the whole pool."""


class View(NamedTuple):
    """What a policy gets when it is asked for an order. Its questions change nothing."""

    now: float
    """Seconds on the engine's clock, the one `RequestView.arrival` was read from."""
    running: tuple[RequestView, ...]
    """In order of admission."""
    waiting: tuple[RequestView, ...]
    """Preempted ones first, then in order of arrival."""
    kv: KVView
    """KV memory as the step begins."""
    fits: Callable[[RequestView], bool]
    """Whether there is room now for all that this request would compute in this step."""
    cached: Callable[[RequestView], int]
    """How many leading tokens of a waiting request would need no compute if it were admitted now; of a
    running one, how many are computed."""
    predict: Callable[[RequestView], float]
    """The output tokens that a request will have when it ends, as the chosen `LengthPredictor` guesses."""
