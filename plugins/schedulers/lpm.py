"""Longest prefix match."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["LongestPrefixMatch"]


class LongestPrefixMatch(SchedulingPolicy):
    """Serves running requests first, then the longest cached prefix (SGLang, Zheng et al. 2024).

    Ties go by arrival, preempted requests first. Prefixes are looked up for `max_queue` waiting requests at
    most; while more wait, admission is as in fcfs, because each look-up hashes a prompt.

    Bound: a request that arrived more than `max_wait` seconds ago comes before all waiting ones that
    arrived after it (except preempted ones, while more than `max_queue` wait), and while it does not fit
    no other request is admitted.
    """

    head_of_line = True
    runners_first = True

    def __init__(
        self,
        max_wait: Annotated[
            float, Field(description="Seconds after which a request goes before all that arrived later.")
        ] = 10.0,
        max_queue: Annotated[
            int, Field(description="Most waiting requests to look prefixes up for; if more wait, as fcfs.")
        ] = 128,
    ) -> None:
        if not max_wait >= 0:
            raise ConfigError(f"max_wait must be at least 0 seconds, not {max_wait:g}")
        if max_queue < 0:
            raise ConfigError(f"max_queue must be at least 0 requests, not {max_queue}")
        self._max_wait = max_wait
        self._max_queue = max_queue
        self._found: dict[RequestView, int] = {}
        """The cached tokens of those that were ordered by them."""
        self._overdue: list[RequestView] = []
        self._too_many = False

    def order(self, view: View) -> Iterable[RequestView]:
        self._found, self._overdue = {}, []
        self._too_many = len(view.waiting) > self._max_queue
        if self._too_many:
            return view.running + view.waiting
        overdue: list[RequestView] = []
        fresh: list[RequestView] = []
        for request in view.waiting:
            (overdue if view.now - request.arrival > self._max_wait else fresh).append(request)
        overdue.sort(key=lambda request: request.arrival)
        self._found, self._overdue = {request: view.cached(request) for request in fresh}, overdue
        fresh.sort(key=self._found.__getitem__, reverse=True)
        return (*view.running, *overdue, *fresh)

    def why(self, request: RequestView) -> str:
        if request in self._found:
            return f"{self._found[request]} of its tokens are cached; the longest cached prefix goes first"
        if request in self._overdue:
            return f"waited for more than {self._max_wait:g} s: before all that arrived later"
        if self._too_many:
            return f"more than {self._max_queue} wait: by arrival, without a look at prefixes"
        return "runs until it ends: none is preempted for one that waits"
