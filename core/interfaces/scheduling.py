"""The scheduling seam: a policy answers questions, it owns no request and allocates nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from turnout.core.types.views import RequestView, View

__all__ = ["Drop", "Entry", "LengthPredictor", "SchedulingPolicy", "Share"]


class Share(NamedTuple):
    """An entry in a policy's order that caps how many tokens the request may compute this step."""

    request: RequestView
    limit: int


class Drop(NamedTuple):
    """An entry in a policy's order that gives a request up: its client gets an error, status 408."""

    request: RequestView
    reason: str


Entry = RequestView | Share | Drop


class SchedulingPolicy(ABC):
    """Answers in what order requests are served."""

    head_of_line: ClassVar[bool] = False
    """True: a request that cannot be admitted now keeps those behind it waiting too."""

    runners_first: ClassVar[bool] = False
    """True: those who run and need nothing but their next token come first, each for all it wants; where the
    others come does not depend on them; and `victim` and `observe` are the defaults. Nothing is lost where a
    policy does not say so, but a simulation may then pass over such requests as long as nothing happens to
    them. Counts where `order` is defined: a subclass with an order of its own says it again."""

    @abstractmethod
    def order(self, view: View) -> Iterable[Entry]:
        """Requests in the order to serve them this step; leave out whoever should not run now.

        Called once a step, and read in full before anything changes. Where there is work, something in
        the order must be servable, or the mechanism reports the policy and serves in arrival order. A
        running request that is left out keeps its memory.
        """

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        """Who gives its memory and its place up when `request` does not fit; None: nobody, `request` waits.

        `running` is in order of admission and not empty. By default a running request is made room
        for by the newest admission, possibly itself, so that the oldest always makes progress, and a
        newcomer waits. Asked until the request fits, and not again for a newcomer in a step in which the
        answer was None once. A policy that evicts for newcomers should be `head_of_line`: what an urgent one
        has freed without yet fitting would else be given away, to be freed again at the next step.
        """
        return running[-1] if request in running else None

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        """Called after each step in which `request` produced `tokens` new tokens."""


class LengthPredictor(ABC):
    """Guesses how long outputs will be, for the policies that rank by length (`View.predict`)."""

    @abstractmethod
    def predict(self, request: RequestView) -> float:
        """Output tokens of `request` in all. Called often: must be fast and without side effect."""

    def observe(self, request: RequestView) -> None:
        """Called once for each request that ended by itself, with its final `output_tokens`."""
