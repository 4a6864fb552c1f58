"""First come, first served."""

from __future__ import annotations

from collections.abc import Iterable

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["Fcfs"]


class Fcfs(SchedulingPolicy):
    """Serves running requests first, then waiting ones in order of arrival; none overtakes the first."""

    head_of_line = True
    runners_first = True

    def __init__(self) -> None:
        self._waiting: tuple[RequestView, ...] = ()

    def order(self, view: View) -> Iterable[RequestView]:
        self._waiting = view.waiting
        return view.running + self._waiting

    def why(self, request: RequestView) -> str:
        if request not in self._waiting:
            return "runs until it ends: none is preempted for one that waits"
        return f"place {self._waiting.index(request) + 1} of {len(self._waiting)}, by arrival"
