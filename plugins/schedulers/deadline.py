"""Earliest deadline first."""

from __future__ import annotations

from itertools import chain
from math import inf
from typing import Annotated, Literal, get_args

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import Drop, Entry, SchedulingPolicy
from turnout.core.scheduling.order import Order
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.last_runner import LastRunner
from turnout.plugins.schedulers.ranked_queue import RankedQueue

__all__ = ["Deadline"]

Hopeless = Literal["drop", "last"]
Rank = tuple[float, float]
"""The next deadline of a request, in seconds on the engine's clock, and its arrival."""


class Deadline(SchedulingPolicy):
    """Serves the request with the earliest deadline first, running or waiting (EDF).

    Liu and Layland, J. ACM 1973. The deadline that counts is ``ttft_deadline``, if the request has one,
    until its first token is out, and ``deadline`` from then on. Requests without a deadline come last; ties
    go by arrival. A waiting request that does not fit preempts running ones with a strictly later deadline;
    a running one preempts the last in this order, possibly itself. While a request waits for room, none
    after it is admitted.

    No bound: earlier deadlines may keep a later one waiting until it has passed.
    """

    head_of_line = True

    def __init__(
        self,
        hopeless: Annotated[
            Hopeless,
            Field(
                description="What to do with a request whose deadline has passed: `drop` it (status 408), "
                "or serve it `last`."
            ),
        ] = "drop",
    ) -> None:
        if hopeless not in get_args(Hopeless):
            raise ConfigError(f"hopeless must be 'drop' or 'last', not {hopeless!r}")
        self._drops = hopeless == "drop"
        self._now = -inf
        self._waiting = RankedQueue[Rank]()
        self._running: dict[RequestView, Rank] = {}
        """The rank of each running request."""
        self._last_runner = LastRunner(self._lateness, newest=True)

    def order(self, view: View) -> Order:
        self._now, known = view.now, self._running
        self._waiting.update(view, _rank)
        ranks = self._running = {request: known.get(request) or _rank(request) for request in view.running}
        passed = self._waiting.count_below((view.now, -inf))
        late = [request for request in view.running if ranks[request][0] < view.now]
        timely = (
            [request for request in view.running if ranks[request][0] >= view.now] if late else view.running
        )
        others = self._waiting.among(timely, ranks.__getitem__, passed)
        hopeless = self._waiting.among(late, ranks.__getitem__, 0, passed)
        self._last_runner.begin_step(chain(others.running, hopeless.running))
        if self._drops:
            return Order([*map(_drop, hopeless), others])
        return Order([others, hopeless])

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        last = self._last_runner.of(running)
        if request not in self._waiting.ranks or self._lateness(last)[:2] > self._lateness(request)[:2]:
            return last
        return None

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        if request.output_tokens == tokens:  # its first tokens: another deadline counts from now on
            self._running.pop(request, None)

    def why(self, request: RequestView) -> str:
        due, _ = self._running.get(request) or _rank(request)
        if due == inf:
            return "no deadline: after all that have one"
        slack = due - self._now
        return f"due in {slack:.2f} s" if slack >= 0 else f"due {-slack:.2f} s ago"

    def _lateness(self, request: RequestView) -> tuple[bool, float, float]:
        due, arrival = self._running.get(request) or self._waiting.ranks[request]
        return due < self._now, due, arrival


def _rank(request: RequestView) -> Rank:
    due = None if request.first_token is not None else request.ttft_deadline
    if due is None:
        due = request.deadline
    return inf if due is None else due, request.arrival


def _drop(request: Entry) -> Drop:
    assert isinstance(request, RequestView)
    awaited = "its first token came" if request.first_token is None else "it was finished"
    return Drop(request, f"the request's deadline passed before {awaited}")
