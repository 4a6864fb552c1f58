"""By the priority that requests carry."""

from __future__ import annotations

from operator import attrgetter

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.views import RequestView, View

__all__ = ["Priority"]


class Priority(SchedulingPolicy):
    """Serves by the request field ``priority``, lower first, ties by arrival; preempts the less urgent.

    A request that finds no memory or no sequence slot takes those of the least urgent running one:
    lowest priority, then latest arrival. One that waits takes them only from a strictly lower priority;
    one that runs gives way itself where it is the least urgent. Nobody is admitted past a request that
    waits for room, so what is freed for it stays free for it. The most urgent request is never preempted,
    so something always gets done.

    Static priorities, as in Liu and Layland, "Scheduling algorithms for multiprogramming in a
    hard-real-time environment", 1973. No bound: a class starves for as long as more urgent ones fill the
    engine.
    """

    head_of_line = True

    def order(self, view: View) -> list[RequestView]:
        # One number at a time: comparing pairs would take longer than everything else.
        in_order = sorted(view.running + view.waiting, key=attrgetter("arrival"))
        return sorted(in_order, key=attrgetter("priority"))

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        last = max(running, key=_urgency)
        return last if last.priority > request.priority or request in running else None


def _urgency(request: RequestView) -> tuple[int, float]:
    return request.priority, request.arrival
