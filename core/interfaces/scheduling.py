"""The scheduling interface: a policy orders requests; it owns no request and allocates nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["Drop", "Entry", "LengthPredictor", "SchedulingPolicy", "Share"]


class Share(NamedTuple):
    """An entry in a policy's order that limits how many tokens the request may compute in this step."""

    request: RequestView
    limit: int


class Drop(NamedTuple):
    """An entry in a policy's order that drops a request: its client gets an error, status 408."""

    request: RequestView
    reason: str


Entry = RequestView | Share | Drop


class SchedulingPolicy(ABC):
    """Decides in which order requests are served.

    The arguments of a policy's constructor are its options: ``--scheduler NAME:option=value``, validated by
    their types. A fault in their values raises `ConfigError`.
    """

    head_of_line: ClassVar[bool] = False
    """True: while a request cannot be admitted, no request after it in the order is."""

    runners_first: ClassVar[bool] = False
    """True declares that running requests that need only their next token come first in the order, without a
    limit; that the order of the others does not depend on them; and that `victim` and `observe` are the
    defaults. A simulation then skips the steps in which nothing else happens to such requests (fast forward).
    False is always correct. A subclass that overrides `order` must declare this again."""

    @abstractmethod
    def order(self, view: View) -> Iterable[Entry]:
        """Returns the requests to serve in this step, in order, without those that should not run now.

        Called once a step, and read in full before anything changes. If there are requests, the order must
        contain one that can be served; otherwise the scheduler logs a fault and serves in arrival order. A
        running request that is left out keeps its memory.
        """

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        """Returns the request to preempt when `request` does not fit; None: preempt none, `request` waits.

        `running` is in order of admission and not empty. By default the newest admission is preempted for a
        running request, possibly that request itself, so that the oldest always makes progress; a waiting
        request waits. Called until the request fits; once it returned None for a waiting request, it is not
        called for waiting requests again in that step. A policy that preempts for waiting requests should be
        `head_of_line`: otherwise memory freed for an urgent request that does not fit yet goes to others, and
        has to be freed again in the next step.
        """
        return running[-1] if request in running else None

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        """Called after each step in which `request` produced `tokens` new tokens."""


class LengthPredictor(ABC):
    """Predicts how long outputs will be, for policies that rank by length (`View.predict`)."""

    @abstractmethod
    def predict(self, request: RequestView) -> float:
        """Returns the output tokens that `request` will have when it ends.

        Called often: must be fast and without side effects.
        """

    def observe(self, request: RequestView) -> None:
        """Called once for each request that ended with ``stop`` or ``length``, with its final length."""
