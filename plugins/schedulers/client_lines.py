"""The waiting requests in a line for each client, kept from step to step, since few of thousands change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from turnout.core.scheduling.step_view import ChangeReader
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["ClientLines"]


class _Job(NamedTuple):
    price: float
    """What the request's prompt will be charged, divided by the client's weight."""
    place: int
    """Lower for those that wait before others."""


class ClientLines:
    """The waiting requests of each client, in the view's order."""

    def __init__(self) -> None:
        self.jobs: dict[RequestView, _Job] = {}
        self.by_client: dict[str, OrderedDict[RequestView, None]] = {}
        """Clients without requests are not in it."""
        self._prices: dict[str, float] = {}
        """Of all requests of a client."""
        self._changes = ChangeReader()
        self._first = self._behind = 0
        """The places in use: from `_first` on, up to `_behind`."""

    def update(
        self,
        view: View,
        on_fresh: Callable[[Sequence[RequestView]], None],
        price: Callable[[RequestView], float],
    ) -> None:
        """Takes out the requests that wait no longer, calls `on_fresh` with new ones, and adds these."""
        change = self._changes.read(view)
        waiting = view.waiting if change is None else ()
        present = set(waiting)
        for request in change.left if change else [r for r in self.jobs if r not in present]:
            self._take_out(request)
        ends = (*change.front, *change.back) if change else waiting
        fresh = [request for request in ends if request not in self.jobs]
        if fresh:
            on_fresh(fresh)
        if change is None:
            prices = {r: self.jobs[r].price if r in self.jobs else price(r) for r in waiting}
            self.jobs, self.by_client, self._prices = {}, {}, {}
            for request in waiting:
                self._append(request, prices[request])
            return
        for request in reversed(change.front):
            self._first -= 1
            self._enter(request, price(request), self._first)
            self.by_client[request.client].move_to_end(request, last=False)
        for request in change.back:
            self._append(request, price(request))

    def by_counter(self, counters: Mapping[str, float]) -> Iterator[RequestView]:
        """Yields the requests as if they were admitted one by one, each charged to its client.

        The client with the least counter is next; ties go to the client whose next request waits before.
        """
        heap = []
        for client, line in self.by_client.items():
            rest = iter(line)
            request = next(rest)
            heap.append((counters[client], self.jobs[request].place, request, rest))
        heapify(heap)
        return self._merged(heap)

    def last(self, counters: Mapping[str, float]) -> str:
        """The client whose request `by_counter` yields last; empty if none waits."""

        def turn(client: str) -> tuple[float, int]:
            job = self.jobs[next(reversed(self.by_client[client]))]
            return counters[client] + self._prices[client] - job.price, job.place

        return max(self.by_client, key=turn, default="")

    # -------------------------------------------------------------- details

    def _merged(
        self, heap: list[tuple[float, int, RequestView, Iterator[RequestView]]]
    ) -> Iterator[RequestView]:
        while heap:
            turn, _, request, rest = heap[0]
            yield request
            following = next(rest, None)
            if following is None:
                heappop(heap)
            else:
                turn += self.jobs[request].price
                heapreplace(heap, (turn, self.jobs[following].place, following, rest))

    def _append(self, request: RequestView, price: float) -> None:
        self._enter(request, price, self._behind)
        self._behind += 1

    def _enter(self, request: RequestView, price: float, place: int) -> None:
        """Adds a request behind the others of its client."""
        self.by_client.setdefault(request.client, OrderedDict())[request] = None
        self.jobs[request] = _Job(price, place)
        self._prices[request.client] = self._prices.get(request.client, 0.0) + price

    def _take_out(self, request: RequestView) -> None:
        client = request.client
        self._prices[client] -= self.jobs.pop(request).price
        line = self.by_client[client]
        del line[request]
        if not line:
            del self.by_client[client], self._prices[client]
