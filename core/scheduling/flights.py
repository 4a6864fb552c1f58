"""Steps in flight: begun, and not through all stages of a pipeline. The next are planned for other requests.

A step takes its share of the requests, so that each stage has one to compute: with two stages, half of those
that run. A request whose next token is on its way is passed over; the rest of a prompt whose first part is on
its way is not. KV memory of a step in flight may be read and reused by later ones, since every stage computes
steps in order; but a request of one is not preempted: the pipeline runs empty first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from turnout.core.interfaces.scheduling import Drop
from turnout.core.types.plan import Plan
from turnout.core.types.request import Request

__all__ = ["Flights"]

Turn = TypeVar("Turn", bound=tuple[Request, int] | Drop)


class Flights:
    """Which requests the steps in flight compute."""

    def __init__(self, stages: int = 1) -> None:
        """stages: how many steps may be in flight; 1: none is while another is planned."""
        self.stages = stages
        self.awaited: set[Request] = set()
        """Those whose results are on their way."""
        self._computed: dict[Request, int] = {}
        """How many chunks each has in flight."""
        self._drains = False

    def __bool__(self) -> bool:
        return bool(self._computed)

    def __contains__(self, request: Request) -> bool:
        return request in self._computed

    def begin(self, plan: Plan) -> None:
        """Notes that a step has begun."""
        for chunk in plan.chunks:
            request = chunk.sequence.request
            self._computed[request] = self._computed.get(request, 0) + 1
            if chunk.rows or chunk.pooled is not None:
                self.awaited.add(request)

    def end(self, plan: Plan) -> None:
        """Notes that the results of the step that was begun first are there."""
        for chunk in plan.chunks:
            request = chunk.sequence.request
            self._computed[request] -= 1
            if not self._computed[request]:
                del self._computed[request]
            if chunk.rows or chunk.pooled is not None:
                self.awaited.discard(request)

    # -------------------------------------------------------------- planning

    @property
    def draining(self) -> bool:
        """Whether nothing is planned until no step is in flight."""
        self._drains = self._drains and bool(self)
        return self._drains

    def drain(self) -> None:
        """Called where a request of a step in flight has to give way."""
        self._drains = True

    def share(self, requests: int) -> int:
        """Returns how many of so many requests a step computes."""
        return -(-requests // self.stages)

    def bounded(self, order: Iterable[Turn], scheduled: Sized, most: int) -> Iterator[Turn]:
        """Yields `order` without requests whose results are on their way, until `most` are scheduled."""
        for turn in order:
            if len(scheduled) >= most:
                return
            if isinstance(turn, Drop) or turn[0] not in self.awaited:
                yield turn
