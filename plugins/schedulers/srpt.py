"""Shortest remaining processing time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.scheduling.order import Order
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.last_runner import LastRunner
from turnout.plugins.schedulers.ranked_queue import RankedQueue
from turnout.plugins.schedulers.ranking import Aging, non_negative

__all__ = ["Srpt"]


class Srpt(SchedulingPolicy):
    """Serves the request with the least work left first, running or waiting; none overtakes the first.

    The least mean response time of all orders, if lengths are known and preemption is free (Schrage,
    "A proof of the optimality of the shortest remaining processing time discipline", 1968).

    A request's rank, in tokens, the lowest first: the tokens to compute now (a prompt, or what a preemption
    cost), the predicted output not produced yet, and `aging` for each second of later arrival. Ties go to
    running requests, then to preempted ones, then to the earliest arrival.

    `preemptive`: a request that lacks memory or a sequence slot preempts a running one of higher rank. That
    is not free here, since what was computed is lost. So a waiting request preempts only where it pays:
    where its rank and the tokens that the other would compute again are together less than the other's rank.
    Two requests do not evict each other in turn, since service lowers the rank of the running one and
    eviction raises the other's; and the lowest rank is never evicted, so there is always progress. False:
    running requests come first, and the newest of them gives way when one lacks memory.

    Bound: a request with R tokens of prompt, counted for each of its choices, and predicted output is
    neither overtaken nor evicted for one that arrives more than ``R / aging`` seconds after it.
    """

    head_of_line = True

    def __init__(
        self,
        aging: Aging = 10.0,
        preemptive: Annotated[
            bool, Field(description="Preempt where it pays; else running requests come first.")
        ] = True,
    ) -> None:
        self._aging = non_negative("aging", aging)
        self._preemptive = preemptive
        self._waiting = RankedQueue[float]()
        self._running: dict[RequestView, float] = {}
        """Ranks of the running requests."""
        self._last_by_rank = LastRunner(self._rank, newest=False)
        self._last_by_spared = LastRunner(self._spared, newest=False)

    def order(self, view: View) -> Order:
        predict, aging = view.predict, self._aging

        def rank(request: RequestView) -> float:
            to_come = max(0.0, predict(request) - request.output_tokens)
            return request.pending + to_come + aging * request.arrival

        self._waiting.update(view, rank)
        if not self._preemptive:
            return self._waiting.behind(view.running)
        self._running = {request: rank(request) for request in view.running}
        self._last_by_rank.begin_step()
        self._last_by_spared.begin_step()
        return self._waiting.among(view.running, self._running.__getitem__)

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        if not self._preemptive:
            return super().victim(request, running)
        if request in self._running:
            return self._last_by_rank.of(running)
        last = self._last_by_spared.of(running)
        return last if self._waiting.ranks[request] < self._spared(last) else None

    def why(self, request: RequestView) -> str:
        known = request in self._running or request in self._waiting.ranks
        if not known:
            return "runs: those that run come first"
        left = self._rank(request) - self._aging * request.arrival
        return f"{left:.0f} tokens left to compute and produce; the fewest go first"

    def _rank(self, request: RequestView) -> float:
        return self._running[request] if request in self._running else self._waiting.ranks[request]

    def _spared(self, request: RequestView) -> float:
        """The rank of a running request, less the tokens that it would have to compute again."""
        again = request.prompt_tokens + request.output_tokens - request.pending
        return self._rank(request) - again
