"""Highest response ratio next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.scheduling.order import Order, Stretch
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.ranked_queue import change_of
from turnout.plugins.schedulers.ranking import non_negative

__all__ = ["Hrrn"]

FIRST = 64
"""Requests that are sorted at first."""


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

        self._jobs.update(view.waiting, est)
        return Order([*view.running, Stretch(self._jobs.by_ratio(view.now))])


class _Jobs:
    """The waiting requests, in the view's order, with their arrivals and their est in output tokens."""

    def __init__(self) -> None:
        self._requests: tuple[RequestView, ...] = ()
        self._known: set[RequestView] = set()
        self._arrivals = self._ests = np.zeros(0)

    def update(self, waiting: tuple[RequestView, ...], est: Callable[[RequestView], float]) -> None:
        if waiting is self._requests:
            return
        change = change_of(self._requests, waiting, self._known)
        if change is None:
            known = dict(zip(self._requests, self._ests.tolist(), strict=True))
            self._arrivals = np.array([request.arrival for request in waiting])
            self._ests = np.array([known[r] if r in known else est(r) for r in waiting])
            self._known = set(waiting)
        else:
            places = [self._requests.index(request) for request in change.left]
            ends = change.front, change.back
            arrivals = [np.array([request.arrival for request in end]) for end in ends]
            ests = [np.array([est(request) for request in end]) for end in ends]
            self._arrivals = np.concatenate([arrivals[0], np.delete(self._arrivals, places), arrivals[1]])
            self._ests = np.concatenate([ests[0], np.delete(self._ests, places), ests[1]])
            self._known.difference_update(change.left)
            self._known.update(*ends)
        self._requests = waiting

    def by_ratio(self, now: float) -> Iterator[RequestView]:
        """Yields the requests by response ratio, the highest first."""
        requests, ratios = self._requests, (now - self._arrivals) / self._ests
        if len(requests) > 2 * FIRST:  # few are admitted in a step: do not sort all for them
            least = np.partition(ratios, -FIRST)[-FIRST]
            first = np.flatnonzero(ratios >= least)
            yield from (requests[place] for place in first[np.argsort(-ratios[first], kind="stable")])
            rest = np.flatnonzero(ratios < least)
        else:
            rest = np.arange(len(requests))
        yield from (requests[place] for place in rest[np.argsort(-ratios[rest], kind="stable")])
