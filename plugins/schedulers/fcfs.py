"""First come, first served."""

from __future__ import annotations

from collections.abc import Iterable

from turnout.core.interfaces import SchedulingPolicy, View
from turnout.core.request import Request

__all__ = ["Fcfs"]


class Fcfs(SchedulingPolicy):
    """Running requests first, then waiting ones in order of arrival; nobody overtakes the head."""

    head_of_line = True

    def order(self, view: View) -> Iterable[Request]:
        yield from view.running
        yield from view.waiting
