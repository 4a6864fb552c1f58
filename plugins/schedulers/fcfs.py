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

    def order(self, view: View) -> Iterable[RequestView]:
        return view.running + view.waiting
