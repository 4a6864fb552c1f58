"""The seam between a server that runs an A/B test and whoever judges it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["SESSION_HEADER", "Leave", "Outcome", "Trial"]

SESSION_HEADER = "X-Session-Id"
"""In which a client says what its requests belong to."""


class Outcome(NamedTuple):
    """What became of one choice of a request. Times are in seconds of one clock."""

    arrival: float
    """Of its request at the engine."""
    token_times: Sequence[float]
    """When each of its tokens came; tokens that came together have one time."""
    finished: float
    prompt_tokens: int
    reason: str
    """``stop``, ``length``, ``abort`` (its client left) or ``error``."""
    error: str = ""
    """Why, where it ended so."""


Leave = Callable[[Sequence[Outcome]], None]
"""To be called once, when a request has ended; without outcomes for one that was refused."""


class Trial(Protocol):
    """Is told of every request of every arm, and says what can be said so far."""

    def arrived(self, arm: str) -> Leave:
        """A request begins, at this moment."""
        ...

    def close(self) -> None:
        """The arms no longer get what their shares are: what comes now compares nothing."""
        ...

    def standing(self) -> dict[str, Any]:
        """What there is to tell, as JSON has it."""
        ...
