"""A policy's order in stretches, so that thousands that wait cost a step nothing while none is admitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from turnout.core.interfaces.scheduling import Entry
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["Order", "Stretch", "read_order"]


class Stretch(NamedTuple):
    """Waiting requests that follow each other in an order."""

    requests: Iterable[RequestView]
    """Read one by one while the step is served, and only as far as requests are admitted: so it must not
    depend on anything that changes meanwhile."""


class Order(Iterable[Entry]):
    """An answer of `SchedulingPolicy.order` that is read no further than a step needs.

    It reads like the list of all entries. The scheduler reads it stretch by stretch: once it admits none
    of the requests any more, it passes over what is left of a stretch at once.
    """

    def __init__(self, parts: Iterable[Entry | Stretch | Order]) -> None:
        self.parts = list(parts)

    def __iter__(self) -> Iterator[Entry]:
        return self.up_to(lambda: False)

    def keep(self) -> None:
        """Has stretches that could be read only once keep what is read of them."""
        for place, part in enumerate(self.parts):
            if isinstance(part, Order):
                part.keep()
            elif isinstance(part, Stretch) and isinstance(part.requests, Iterator):
                self.parts[place] = Stretch(_Kept(part.requests))

    def up_to(self, closed: Callable[[], bool]) -> Iterator[Entry]:
        """Yields the entries, without those of stretches that come once `closed()` is true."""
        for part in self.parts:
            if type(part) is RequestView:  # nearly always
                yield part
            elif isinstance(part, Stretch):
                for request in part.requests:
                    if closed():
                        break
                    yield request
            elif isinstance(part, Order):
                yield from part.up_to(closed)
            else:
                yield part


def read_order(answer: Iterable[Entry], view: View) -> list[Entry] | Order:
    """Returns a policy's answer to `view`, to be read more than once.

    An iterator may never end. One entry more than there are requests is enough: one of them is wrong.
    """
    if isinstance(answer, Order):
        return answer
    if type(answer) in (list, tuple):
        return list(answer)
    return list(islice(answer, len(view.running) + len(view.waiting) + 1))


class _Kept:
    """What an iterator yields, to be read again and again, and no further than is asked."""

    def __init__(self, source: Iterator[RequestView]) -> None:
        self._source, self._read = source, list[RequestView]()

    def __iter__(self) -> Iterator[RequestView]:
        place = 0
        while True:
            if place == len(self._read):
                following = next(self._source, None)
                if following is None:
                    return
                self._read.append(following)
            yield self._read[place]
            place += 1
