"""A batch runs to its end before the next one starts."""

from __future__ import annotations

from collections.abc import Iterable

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.views import RequestView, View

__all__ = ["Static"]


class Static(SchedulingPolicy):
    """Static batching, what continuous batching is measured against (Orca, Yu et al., OSDI 2022).

    The first `size` waiting requests make a batch; the next one is made when all of them have ended.
    Members run in order of admission, then in order of arrival as soon as they fit; a member that is
    preempted stays one. Bound: a request waits for the batches before it and no others.
    """

    def __init__(self, size: int = 32) -> None:
        if size < 1:
            raise ConfigError(f"size must be at least 1 request, not {size}")
        self._size = size
        self._batch: dict[RequestView, None] = {}

    def order(self, view: View) -> Iterable[RequestView]:
        waiting = [request for request in view.waiting if request in self._batch]
        # Who runs is of the batch, also where another policy let it in.
        members = [*view.running, *waiting] or view.waiting[: self._size]
        self._batch = dict.fromkeys(members)
        return members
