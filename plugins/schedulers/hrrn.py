"""Highest response ratio next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.scheduling.order import Order, Stretch
from turnout.core.scheduling.step_view import ChangeReader
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.ranking import non_negative

__all__ = ["Hrrn"]

FIRST = 64
"""Requests that are sorted at first."""
SPARE = 256
"""Free places, at least, where requests are placed anew."""

Floats = npt.NDArray[np.float64]


class Hrrn(SchedulingPolicy):
    """Admits the request with the highest ``(wait + est) / est`` first; no request overtakes it.

    Brinch Hansen, "An analysis of response ratio scheduling", 1971: short requests go first, but waiting
    counts in proportion to length, so that all are slowed down alike. Running requests are served first, and
    none is preempted for a waiting one.

    ``wait`` is the time since arrival; ``est``, the time that the request will take, is its predicted output
    plus `prompt_cost` for each prompt token, divided by the engine's speed. The speed, in output tokens a
    second, cancels when ratios are compared, so it is not needed. The length is
    predicted when the request comes to wait. Ties go to preempted requests, then to the earliest arrival.

    A request that overtakes another has waited at least ``its own est / the other's est`` as long. That is
    no bound in seconds: while more short requests arrive than can be served, a long one may wait for ever.
    """

    head_of_line = True
    runners_first = True

    def __init__(
        self,
        prompt_cost: Annotated[float, Field(description="Cost of a prompt token, in output tokens.")] = 0.1,
    ) -> None:
        self._prompt_cost = non_negative("prompt_cost", prompt_cost)
        self._jobs = _Jobs()

    def order(self, view: View) -> Order:
        predict, prompt_cost = view.predict, self._prompt_cost

        def est(request: RequestView) -> float:
            return max(1.0, predict(request) + prompt_cost * request.prompt_tokens)

        self._jobs.update(view, est)
        return Order([*view.running, Stretch(self._jobs.by_ratio(view.now))])

    def why(self, request: RequestView) -> str:
        if (ratio := self._jobs.ratio(request)) is None:
            return "runs: none is preempted for one that waits"
        return f"response ratio {ratio:.2f}; the highest goes first"


class _Jobs:
    """The waiting requests with their arrivals and their est in output tokens, each in a place of its own."""

    def __init__(self) -> None:
        self._changes = ChangeReader()
        self._places: dict[RequestView, int] = {}
        self._free: list[int] = []
        self._requests: list[RequestView | None] = []
        """None where a place is free. There, the arrival is infinitely late, and so the ratio least."""
        self._arrivals = self._ests = self._turns = np.zeros(0)
        self._now = 0.0
        self._first = self._behind = 0
        """Turns, by which ties go, lie between: lower for those that wait before others."""

    def update(self, view: View, est: Callable[[RequestView], float]) -> None:
        change = self._changes.read(view)
        if change is None or len(self._free) > len(self._places) + SPARE:
            self._place_anew(view.waiting, est)
            return
        for request in change.left:
            self._take_out(request)
        for request in reversed(change.front):
            self._first -= 1
            self._enter(request, est(request), self._first)
        for request in change.back:
            self._enter(request, est(request), self._behind)
            self._behind += 1

    def by_ratio(self, now: float) -> Iterator[RequestView]:
        """Yields the requests by response ratio, the highest first."""
        self._now = now
        ratios = (now - self._arrivals) / self._ests
        if len(ratios) > 2 * FIRST:  # few are admitted in a step: do not sort all for them
            least = np.partition(ratios, -FIRST)[-FIRST]
            yield from self._sorted(ratios, ratios >= least)
            yield from self._sorted(ratios, ratios < least)
        else:
            yield from self._sorted(ratios, np.full(len(ratios), True))

    def ratio(self, request: RequestView) -> float | None:
        """The response ratio of a request that waits, when they were last ordered."""
        place = self._places.get(request)
        return None if place is None else float((self._now - self._arrivals[place]) / self._ests[place])

    # -------------------------------------------------------------- details

    def _sorted(self, ratios: Floats, chosen: npt.NDArray[np.bool_]) -> Iterator[RequestView]:
        places = np.flatnonzero(chosen)
        for place in places[np.lexsort((self._turns[places], -ratios[places]))]:
            request = self._requests[place]
            if request is not None:
                yield request

    def _place_anew(self, waiting: tuple[RequestView, ...], est: Callable[[RequestView], float]) -> None:
        old, ests, count = self._places, self._ests.tolist(), len(waiting)
        self._arrivals, self._ests = np.full(count + SPARE, inf), np.ones(count + SPARE)
        self._arrivals[:count] = [request.arrival for request in waiting]
        self._ests[:count] = [ests[old[r]] if r in old else est(r) for r in waiting]
        self._turns = np.arange(count + SPARE, dtype=float)
        self._requests = [*waiting, *[None] * SPARE]
        self._free = list(range(count, count + SPARE))
        self._places = {request: place for place, request in enumerate(waiting)}
        self._first, self._behind = 0, count

    def _enter(self, request: RequestView, est: float, turn: int) -> None:
        if not self._free:
            self._grow()
        place = self._free.pop()
        self._places[request], self._requests[place] = place, request
        self._arrivals[place], self._ests[place], self._turns[place] = request.arrival, est, turn

    def _take_out(self, request: RequestView) -> None:
        place = self._places.pop(request)
        self._requests[place], self._arrivals[place] = None, inf
        self._free.append(place)

    def _grow(self) -> None:
        count = len(self._requests)
        more = max(SPARE, count // 2)
        self._requests += [None] * more
        self._arrivals = np.concatenate([self._arrivals, np.full(more, inf)])
        self._ests = np.concatenate([self._ests, np.ones(more)])
        self._turns = np.concatenate([self._turns, np.zeros(more)])
        self._free += range(count, count + more)
