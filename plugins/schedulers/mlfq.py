"""Skip-join multi-level feedback queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Annotated

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.scheduling.order import Order
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.last_runner import LastRunner
from turnout.plugins.schedulers.ranked_queue import RankedQueue

__all__ = ["Mlfq"]


@dataclass(slots=True)
class _Standing:
    """Where a request stands among the levels."""

    level: int
    """0 is served first."""
    used: int
    """Tokens used of its level's quantum."""
    served: float
    """When its last token came; before its first token, when it arrived."""


class Mlfq(SchedulingPolicy):
    """Serves short work first without knowing lengths: skip-join MLFQ (FastServe, Wu et al. 2023).

    Level i (0 is the top) has a quantum of `quantum` * 2**i tokens; the last of the `levels` has no limit. A
    request joins the first level whose quantum holds its prompt, and uses the quantum up by its prompt and by
    each output token; then it moves a level down, with a fresh quantum. Higher levels are served first, by
    arrival within a level. Running requests of lower levels keep their memory and are served from what is
    left of a step's budget. When memory or sequence slots are short, the last requests in this order are
    preempted, but only for requests before them; while the first waiting request waits, none is admitted.

    Bound: a request that got no token for `starve_limit` seconds moves to the top with a fresh quantum, and
    so comes before every request that arrived after it. State: three numbers for each live request.
    """

    head_of_line = True

    def __init__(
        self,
        quantum: Annotated[
            int, Field(description="Tokens to use up at the top level; each level below has twice as many.")
        ] = 128,
        levels: Annotated[int, Field(description="Levels; the last has no limit.")] = 6,
        starve_limit: Annotated[
            float, Field(description="Seconds without a token after which a request moves to the top.")
        ] = 10.0,
    ) -> None:
        if quantum < 1 or levels < 1:
            raise ConfigError(f"quantum (given: {quantum}) and levels (given: {levels}) must be at least 1")
        if not starve_limit > 0:
            raise ConfigError(f"starve_limit must be above 0 seconds, not {starve_limit:g}")
        self._quanta = [quantum << level for level in range(levels - 1)]
        self._lowest = levels - 1
        self._starve_limit = starve_limit
        self._standings: dict[RequestView, _Standing] = {}
        self._ranks: dict[RequestView, tuple[int, float]] = {}
        """Their levels, and by arrival within a level: kept, since few change in a step."""
        self._ran: tuple[RequestView, ...] = ()
        """The requests that ran in the last step."""
        self._waiting = RankedQueue[tuple[int, float]]()
        self._last_runner = LastRunner(self._ranks.__getitem__, newest=True)
        self._starving: list[tuple[float, int, RequestView]] = []
        """A heap of waiting requests below the top level, by when their last token came."""
        self._number = 0
        """Of the last one that came to it: requests themselves have no order."""

    def order(self, view: View) -> Order:
        left = self._waiting.update(view, self._queue)
        self._lift_starved(view)
        if len(self._standings) > len(view.running) + len(self._waiting.ranks):
            self._forget({*self._ran, *left}.difference(view.running))
        self._ran = view.running
        order = self._waiting.among(view.running, self._ranks.__getitem__)
        self._last_runner.begin_step(order.running)
        return order

    def _queue(self, request: RequestView) -> tuple[int, float]:
        """The rank of a request that came to wait."""
        standing = self._standings.get(request) or self._join(request)
        if standing.level:
            self._number += 1
            heappush(self._starving, (standing.served, self._number, request))
        return self._ranks[request]

    def _forget(self, requests: Iterable[RequestView]) -> None:
        """Forgets those of `requests`, which do not run, that do not wait either."""
        for request in requests:
            if request not in self._waiting.ranks:
                self._standings.pop(request, None)
                self._ranks.pop(request, None)

    def _lift_starved(self, view: View) -> None:
        starved, waiting = view.now - self._starve_limit, self._waiting
        if len(self._starving) > 2 * len(waiting.ranks):
            self._starving = [each for each in self._starving if each[2] in waiting.ranks]
            heapify(self._starving)
        for request in view.running:
            standing = self._standings.get(request) or self._join(request)
            if standing.level and standing.served < starved:
                self._move(request, standing, 0)
        while self._starving and self._starving[0][0] < starved:
            _, _, request = heappop(self._starving)
            if request not in waiting.ranks:
                continue
            standing = self._standings[request]
            if standing.level and standing.served < starved:
                self._move(request, standing, 0)
                waiting.change_rank(request, self._ranks[request], view)

    def victim(self, request: RequestView, running: tuple[RequestView, ...]) -> RequestView | None:
        ranks, last = self._ranks, self._last_runner.of(running)
        return last if request not in self._waiting.ranks or ranks[last] > ranks[request] else None

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        standing = self._standings.get(request)
        if standing is None:
            return  # another policy admitted it, and `order` has not seen it yet
        standing.served = now
        standing.used += tokens
        if standing.level < self._lowest and standing.used >= self._quanta[standing.level]:
            self._move(request, standing, standing.level + 1)

    def why(self, request: RequestView) -> str:
        if (standing := self._standings.get(request)) is None:
            return ""
        quantum = self._quanta[standing.level] if standing.level < self._lowest else "any"
        level = f"level {standing.level} of 0 to {self._lowest}"
        return f"{level}: used {standing.used} of {quantum} tokens; the lowest level goes first"

    def _join(self, request: RequestView) -> _Standing:
        prompt = request.prompt_tokens
        level = next((i for i, quantum in enumerate(self._quanta) if quantum >= prompt), self._lowest)
        standing = self._standings[request] = _Standing(level, prompt, request.arrival)
        self._ranks[request] = level, request.arrival
        return standing

    def _move(self, request: RequestView, standing: _Standing, level: int) -> None:
        """Moves a request to another level, with a fresh quantum."""
        standing.level, standing.used = level, 0
        self._ranks[request] = level, request.arrival
