"""Static batching: a batch runs to its end before the next one starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["Static"]


class Static(SchedulingPolicy):
    """Runs a batch to its end before the next one: static batching, the baseline of continuous batching.

    Orca, Yu et al., OSDI 2022. The first `size` waiting requests make a batch; the next batch is made when
    all of them have ended. Members run in order of admission, then in order of arrival as soon as they fit;
    a member that is preempted stays in the batch. Bound: a request waits for the batches before it and for
    no others.
    """

    def __init__(self, size: Annotated[int, Field(description="Requests in a batch.")] = 32) -> None:
        if size < 1:
            raise ConfigError(f"size must be at least 1 request, not {size}")
        self._size = size
        self._batch: dict[RequestView, None] = {}

    def order(self, view: View) -> Iterable[RequestView]:
        left_out = self._batch.keys() - view.running  # they wait, if they have not ended
        waiting = [request for request in view.waiting if request in left_out] if left_out else []
        # Each running request is a member, even if another policy admitted it.
        members = [*view.running, *waiting] or view.waiting[: self._size]
        self._batch = dict.fromkeys(members)
        return members

    def why(self, request: RequestView) -> str:
        if request in self._batch:
            return f"one of the batch of {len(self._batch)}, which runs to its end"
        return "waits: the batch before it has not ended"
