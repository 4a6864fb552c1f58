"""The waiting requests in order of a rank: kept sorted from step to step, since few of thousands change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Generic, TypeVar

from turnout.core.interfaces.scheduling import Entry
from turnout.core.scheduling.order import Order, Stretch
from turnout.core.scheduling.step_view import ChangeReader
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["Merged", "RankedQueue"]

Rank = TypeVar("Rank", bound=Any)
Views = tuple[RequestView, ...]


class RankedQueue(Generic[Rank]):
    """The waiting requests, lowest rank first. A request's rank is made when it comes to wait.

    Ties go to preempted requests, then to the earliest arrival, as the view has them.
    """

    def __init__(self) -> None:
        self.ranks: dict[RequestView, Rank] = {}
        self.requests: list[RequestView] = []
        self._sorted_ranks: list[Rank] = []
        """The rank of each of `requests`."""
        self._changes = ChangeReader()

    def update(self, view: View, rank: Callable[[RequestView], Rank]) -> tuple[RequestView, ...]:
        """Adds those that came to wait, by `rank`, and forgets those that left; returns these."""
        change = self._changes.read(view)
        if change is None:
            return self._sort_anew(view.waiting, rank)
        for request in change.left:
            self._remove(request)
        for request in reversed(change.front):
            self._insert(request, rank(request), bisect_left)
        for request in change.back:
            self._insert(request, rank(request), bisect_right)
        return change.left

    def change_rank(self, request: RequestView, rank: Rank, view: View) -> None:
        """Gives a waiting request another rank, in the step of `view`."""
        self._remove(request)
        first, end = bisect_left(self._sorted_ranks, rank), bisect_right(self._sorted_ranks, rank)
        if first < end:
            place = view.waiting.index
            first += sum(place(other) < place(request) for other in self.requests[first:end])
        self._insert(request, rank, lambda *_: first)

    def behind(self, running: Iterable[RequestView]) -> Order:
        """The order in which all running requests come first."""
        return Order([*running, Stretch(_Part(self.requests, 0, len(self.requests)))])

    def among(
        self,
        running: Iterable[RequestView],
        rank: Callable[[RequestView], Rank],
        first: int = 0,
        end: int | None = None,
    ) -> Merged[Rank]:
        """The order by rank; ties go to running requests, in the order given.

        rank: of a running request. first, end: which of the waiting ones to name.
        """
        runs = tuple(running)
        by_rank = sorted(zip(map(rank, runs), runs, strict=True), key=itemgetter(0))
        stretch = first, len(self.requests) if end is None else end
        return Merged(by_rank, self.requests, self._sorted_ranks, stretch)

    def count_below(self, rank: Rank) -> int:
        """How many of the waiting requests have a lower rank."""
        return bisect_left(self._sorted_ranks, rank)

    # -------------------------------------------------------------- details

    def _sort_anew(self, waiting: Views, rank: Callable[[RequestView], Rank]) -> Views:
        """As `update`, where much has changed."""
        known, before = self.ranks, self.requests
        self.ranks = {r: known[r] if r in known else rank(r) for r in waiting}
        self.requests = sorted(waiting, key=self.ranks.__getitem__)
        self._sorted_ranks = [self.ranks[request] for request in self.requests]
        return tuple(request for request in before if request not in self.ranks)

    def _insert(self, request: RequestView, rank: Rank, place: Callable[[list[Rank], Rank], int]) -> None:
        at = place(self._sorted_ranks, rank)
        self.ranks[request] = rank
        self.requests.insert(at, request)
        self._sorted_ranks.insert(at, rank)

    def _remove(self, request: RequestView) -> None:
        at = self.requests.index(request, bisect_left(self._sorted_ranks, self.ranks.pop(request)))
        del self.requests[at], self._sorted_ranks[at]


class _Part:
    """The requests of a list from one place to before another. Not copied: a step reads few of thousands."""

    __slots__ = ("_end", "_first", "_requests")

    def __init__(self, requests: list[RequestView], first: int, end: int) -> None:
        self._requests, self._first, self._end = requests, first, end

    def __iter__(self) -> Iterator[RequestView]:
        return map(self._requests.__getitem__, range(self._first, self._end))


class Merged(Order, Generic[Rank]):
    """Running requests among those that wait, by rank; merged as far as it is read."""

    def __init__(
        self,
        running: list[tuple[Rank, RequestView]],
        waiting: list[RequestView],
        ranks: list[Rank],
        stretch: tuple[int, int],
    ) -> None:
        """waiting, ranks: sorted. stretch: which of the waiting to name: the first, and behind the last."""
        self._running = running
        self._waiting, self._ranks, self._stretch = waiting, ranks, stretch

    @property
    def running(self) -> Iterator[RequestView]:
        """The running requests by rank; equals as they were given."""
        return (request for _, request in self._running)

    def keep(self) -> None:
        """It can be read again as it is."""

    def up_to(self, closed: Callable[[], bool]) -> Iterator[Entry]:
        waiting, ranks, (place, end) = self._waiting, self._ranks, self._stretch
        for rank, request in self._running:
            while place < end and ranks[place] < rank:
                if closed():
                    end = place
                    break
                yield waiting[place]
                place += 1
            yield request
        while place < end and not closed():
            yield waiting[place]
            place += 1
