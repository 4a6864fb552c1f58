"""The waiting requests in order of a rank: kept sorted from step to step, since few of thousands change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from turnout.core.scheduling.order import Order, Stretch
from turnout.core.types.request import RequestView

__all__ = ["Change", "RankedQueue", "change_of"]

Rank = TypeVar("Rank", bound=Any)
Views = tuple[RequestView, ...]
BLOCK = 256
FEW = 64


class Change(NamedTuple):
    """What happened to the waiting requests between two steps."""

    front: Views
    """Those that came to wait before all others."""
    left: Views
    """Those that wait no longer."""
    back: Views
    """Those that came to wait behind all others."""


NO_CHANGE = Change((), (), ())


def change_of(before: Views, after: Views, waited: Container[RequestView]) -> Change | None:
    """Compares the waiting requests of two steps, `waited` being those of `before`.

    Takes a time that hardly grows with their number. None: too much has changed, or the requests that stayed
    have changed places.
    """
    first = next((n for n, request in enumerate(after[: FEW + 1]) if request in waited), None)
    if first is None or first > FEW:
        return None
    old, new, left = 0, first, list[RequestView]()
    while old < len(before) and new < len(after):
        if before[old : old + BLOCK] == after[new : new + BLOCK]:  # compared by identity, at memory speed
            old, new = min(old + BLOCK, len(before)), min(new + BLOCK, len(after))
        elif before[old] is after[new]:
            same = _alike(before[old : old + BLOCK], after[new : new + BLOCK])
            old, new = old + same, new + same
        elif after[new] not in waited:
            break
        else:
            left.append(before[old])
            old += 1
            if len(left) > FEW:
                return None
    left += before[old : old + FEW + 1 - len(left)]
    back = after[new:]
    if len(left) > FEW or len(back) > FEW or any(request in waited for request in back):
        return None
    return Change(after[:first], tuple(left), back)


def _alike(some: Views, others: Views) -> int:
    """Counts the requests that two stretches have in common at their beginning."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((n for n, (one, other) in pairs if one is not other), min(len(some), len(others)))


class RankedQueue(Generic[Rank]):
    """The waiting requests, lowest rank first. A request's rank is made when it comes to wait.

    Ties go to preempted requests, then to the earliest arrival, as the view has them.
    """

    def __init__(self) -> None:
        self.ranks: dict[RequestView, Rank] = {}
        self.requests: list[RequestView] = []
        self._sorted_ranks: list[Rank] = []
        """The rank of each of `requests`."""
        self._seen: Views = ()

    def update(self, waiting: Views, rank: Callable[[RequestView], Rank]) -> Change:
        """Adds those that came to wait, by `rank`, and forgets those that left; returns them."""
        if waiting is self._seen:
            return NO_CHANGE
        change = change_of(self._seen, waiting, self.ranks)
        if change is None:
            new = set(waiting)
            change = Change((), tuple(r for r in self._seen if r not in new), waiting)
            known = self.ranks
            self.ranks = {r: known[r] if r in known else rank(r) for r in waiting}
            self.requests = sorted(waiting, key=self.ranks.__getitem__)
            self._sorted_ranks = [self.ranks[request] for request in self.requests]
        else:
            for request in change.left:
                self._remove(request)
            for request in reversed(change.front):
                self._insert(request, rank(request), bisect_left)
            for request in change.back:
                self._insert(request, rank(request), bisect_right)
        self._seen = waiting
        return change

    def change_rank(self, request: RequestView, rank: Rank) -> None:
        """Gives a waiting request another rank."""
        self._remove(request)
        equals = slice(bisect_left(self._sorted_ranks, rank), bisect_right(self._sorted_ranks, rank))
        place = self._seen.index
        ahead = sum(place(other) < place(request) for other in self.requests[equals])
        self._insert(request, rank, lambda *_: equals.start + ahead)

    def behind(self, running: Iterable[RequestView]) -> Order:
        """The order in which all running requests come first."""
        return Order([*running, Stretch(_Part(self.requests, 0, len(self.requests)))])

    def among(
        self,
        running: Iterable[RequestView],
        rank: Callable[[RequestView], Rank],
        first: int = 0,
        end: int | None = None,
    ) -> list[RequestView | Stretch]:
        """The parts of an order by rank; ties go to running requests, in the order given.

        rank: of a running request. first, end: which of the waiting ones to name.
        """
        end = len(self.requests) if end is None else end
        parts = list[RequestView | Stretch]()
        runs = tuple(running)
        ranks = list(map(rank, runs))
        for place in sorted(range(len(runs)), key=ranks.__getitem__):
            if first < end and self._sorted_ranks[first] < ranks[place]:
                at = bisect_left(self._sorted_ranks, ranks[place], first, end)
                parts.append(Stretch(_Part(self.requests, first, at)))
                first = at
            parts.append(runs[place])
        return [*parts, Stretch(_Part(self.requests, first, end))]

    def count_below(self, rank: Rank) -> int:
        """How many of the waiting requests have a lower rank."""
        return bisect_left(self._sorted_ranks, rank)

    # -------------------------------------------------------------- details

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
