"""A scheduling policy that admits clients in turn, in proportion to weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from turnout import RequestView, SchedulingPolicy, View
from turnout_weighted_round_robin.weights import checked

__all__ = ["WeightedRoundRobin"]


class WeightedRoundRobin(SchedulingPolicy):
    """Admits clients in turn, by weight, and a client's own requests in order of arrival.

    This is stride scheduling (Waldspurger and Weihl 1995): an admission advances its client by 1 / weight,
    and the client that is furthest behind is next. A client that returns starts level with the waiting client
    that is furthest behind, so that it gains nothing by being idle. No client overtakes the next in turn, so
    each is served within a round.
    """

    head_of_line = True

    def __init__(
        self,
        weights: Annotated[
            dict[str, float] | None,
            Field(description="""Turns of a client in a round, 1 for others: '{"gold": 3}'."""),
        ] = None,
    ) -> None:
        self._weights = checked(weights)
        self._progress: dict[str, float] = {}
        """By client with requests in the engine: turns taken, divided by the weight."""
        self._admitted: set[str] = set()
        """Ids of requests whose turn has been counted."""

    def order(self, view: View) -> Iterable[RequestView]:
        self._update_clients(view)
        self._count_turns(view)
        yield from view.running
        yield from self._in_turn(view.waiting)

    def _update_clients(self, view: View) -> None:
        """Adds new clients, level with the one furthest behind, and removes clients without requests."""
        here = dict.fromkeys(request.client for request in (*view.running, *view.waiting))
        known = {client: self._progress[client] for client in here if client in self._progress}
        behind = [known[request.client] for request in view.waiting if request.client in known]
        start = min(behind, default=max(known.values(), default=0.0))
        self._progress = {client: known.get(client, start) for client in here}

    def _count_turns(self, view: View) -> None:
        """Counts a turn when a request first runs; a preempted request has had its turn."""
        for request in view.running:
            if request.id not in self._admitted:
                self._progress[request.client] += 1 / self._weights.get(request.client, 1.0)
        waiting = {request.id for request in view.waiting} & self._admitted
        self._admitted = waiting | {request.id for request in view.running}

    def _in_turn(self, waiting: tuple[RequestView, ...]) -> list[RequestView]:
        """Returns requests in the order in which they would be admitted one by one."""
        progress, turns = dict(self._progress), dict[RequestView, float]()
        for request in waiting:
            turns[request] = progress[request.client]
            if request.id not in self._admitted:
                progress[request.client] += 1 / self._weights.get(request.client, 1.0)
        return sorted(waiting, key=turns.__getitem__)
