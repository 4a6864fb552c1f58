"""The interface between a server that runs an A/B test and the code that evaluates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

__all__ = ["SESSION_HEADER", "Outcome", "RecordEnd", "Trial"]

SESSION_HEADER = "X-Session-Id"
"""The header in which a client names the session that a request belongs to."""


class Outcome(NamedTuple):
    """The outcome of one choice of a request. Times are seconds of one clock."""

    arrival: float
    """When the request arrived at the engine."""
    token_times: Sequence[float]
    """When each of its tokens came; tokens that came together have the same time."""
    finished: float
    prompt_tokens: int
    reason: str
    """``stop``, ``length``, ``abort`` (its client left) or ``error``."""
    error: str = ""
    """The message, if it ended with an error."""


RecordEnd = Callable[[Sequence[Outcome]], None]
"""To be called once, when a request has ended; with no outcomes if it was rejected."""


class Trial(Protocol):
    """Records each request of each arm of an A/B test, and reports the results so far."""

    def arrived(self, arm: str) -> RecordEnd:
        """Records that a request arrived at an arm now; returns what to call when it has ended."""
        ...

    def close(self) -> None:
        """Ends the comparison: from now on, the arms no longer get their shares of requests."""
        ...

    def results(self, policy_faults: Mapping[str, int]) -> dict[str, Any]:
        """Returns the results so far, in JSON's types.

        policy_faults: by arm, answers of its scheduling policies that could not be carried out.
        """
        ...
