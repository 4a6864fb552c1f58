"""Which running request is last by a rank: sorted once a step, since a step that lacks memory asks often."""

from __future__ import annotations

from bisect import insort_left, insort_right
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from turnout.core.types.request import RequestView

__all__ = ["LastRunner"]

Rank = TypeVar("Rank", bound=Any)


class LastRunner(Generic[Rank]):
    """The running requests of a step by `rank`, sorted when the step first asks for one."""

    def __init__(self, rank: Callable[[RequestView], Rank], *, newest: bool) -> None:
        """rank: does not change within a step. newest: among equals, the latest admission is last."""
        self._rank, self._newest = rank, newest
        self._by_rank: Iterable[RequestView] = ()
        self._sorted: list[RequestView] = []
        self._known: set[RequestView] = set()

    def begin_step(self, by_rank: Iterable[RequestView] = ()) -> None:
        """by_rank: the running requests as this would sort them, if the caller has them so."""
        self._by_rank, self._known = by_rank, set()

    def of(self, running: tuple[RequestView, ...]) -> RequestView:
        """The last one of `running`, which are in order of admission and not empty."""
        if not self._known:
            self._sorted = list(self._by_rank) or sorted(
                running if self._newest else reversed(running), key=self._rank
            )
            self._known = set(self._sorted)
        self._add_newcomers(running)
        while len(self._sorted) > len(running) and self._sorted[-1] not in running:  # it gave way already
            self._sorted.pop()
        return self._sorted[-1]

    def _add_newcomers(self, running: tuple[RequestView, ...]) -> None:
        """Adds those that the step has admitted: they are the latest admissions."""
        known = len(running)
        while known and running[known - 1] not in self._known:
            known -= 1
        insort = insort_right if self._newest else insort_left
        for request in running[known:]:
            insort(self._sorted, request, key=self._rank)
            self._known.add(request)
