"""Scheduling by the priority that requests carry."""

from __future__ import annotations

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.scheduling.order import Order
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.last_runner import LastRunner
from turnout.plugins.schedulers.ranked_queue import RankedQueue

__all__ = ["Priority"]


class Priority(SchedulingPolicy):
    """Serves by the request field ``priority``, lower first, ties by arrival; preempts less urgent requests.

    A request that finds no memory or no sequence slot preempts the least urgent running one: the highest
    number in ``priority``, then the latest arrival. A waiting request preempts only those of strictly less
    urgency; a running one gives way itself if it is the least urgent. While a request waits for room none
    after it is admitted, so what is freed for it stays free. The most urgent request is never preempted, so
    there is always progress.

    Static priorities, as in Liu and Layland, "Scheduling algorithms for multiprogramming in a hard-real-time
    environment", 1973. No bound: a priority starves for as long as more urgent requests fill the engine.
    """

    head_of_line = True

    def __init__(self) -> None:
        self._waiting = RankedQueue[tuple[int, float]]()
        self._last_runner = LastRunner(_urgency, newest=False)

    def order(self, view: View) -> Order:
        self._waiting.update(view, _urgency)
        self._last_runner.begin_step()
        return self._waiting.among(view.running, _urgency)

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        last = self._last_runner.of(running)
        return last if last.priority > request.priority or request in running else None

    def why(self, request: RequestView) -> str:
        return f"priority {request.priority}; the lowest number goes first"


def _urgency(request: RequestView) -> tuple[int, float]:
    return request.priority, request.arrival
