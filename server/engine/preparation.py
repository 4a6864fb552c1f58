"""Requests that need something slow before they can be served: it is done beside the engine's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from turnout.core.errors import Overloaded
from turnout.core.types.request import RequestSpec

__all__ = ["POLL", "Preparation"]

THREADS = 2
"""One that is slow does not hold up the next."""
POLL = 0.002
"""Seconds between two looks at what is done, while the engine has nothing else to do."""


class _Job(NamedTuple):
    request: RequestSpec
    done: Future[None]


class Preparation:
    """Who is being prepared. For the engine's thread alone."""

    def __init__(self, limit: int) -> None:
        """At most `limit` at a time."""
        self._limit = limit
        self._jobs: dict[str, _Job] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="prepare")

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def begin(self, request: RequestSpec, work: Sequence[Callable[[], object]]) -> None:
        """Raises Overloaded."""
        if len(self._jobs) >= self._limit and request.resume is None:
            raise Overloaded(f"{self._limit} requests are being prepared already; try again later")
        self._jobs[request.id] = _Job(request, self._threads.submit(_do, work))

    def cancel(self, request_id: str) -> None:
        """Its work may go on, but nobody waits for it."""
        job = self._jobs.pop(request_id, None)
        if job is not None:
            job.done.cancel()

    def finished(self) -> Iterator[tuple[RequestSpec, BaseException | None]]:
        """Those done by now, in the order in which they came, and what went wrong with them."""
        for job in [job for job in self._jobs.values() if job.done.done()]:
            del self._jobs[job.request.id]
            yield job.request, job.done.exception()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _do(work: Sequence[Callable[[], object]]) -> None:
    for item in work:
        item()
