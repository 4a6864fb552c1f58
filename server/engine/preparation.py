"""Prepares requests that need slow work before they can be served, in threads beside the engine's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from turnout.core.errors import Overloaded
from turnout.core.types.request import RequestSpec

__all__ = ["POLL_SECONDS", "Preparation"]

THREADS = 2
"""More than one, so that slow work does not hold up the next request."""
POLL_SECONDS = 0.002
"""How often the engine looks for finished work while it has nothing else to do."""


class _Job(NamedTuple):
    """A request and its work."""

    request: RequestSpec
    done: Future[None]


class Preparation:
    """The requests that are being prepared. For use by the engine's thread alone."""

    def __init__(self, limit: int) -> None:
        """Prepare at most `limit` requests at a time."""
        self._limit = limit
        self._jobs: dict[str, _Job] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="prepare")

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def begin(self, request: RequestSpec, work: Sequence[Callable[[], object]]) -> None:
        """Start the work of a request. Raises Overloaded if too many requests are being prepared."""
        if len(self._jobs) >= self._limit and request.resume is None:
            raise Overloaded(f"{self._limit} requests are being prepared already; try again later")
        self._jobs[request.id] = _Job(request, self._threads.submit(_do, work))

    def cancel(self, request_id: str) -> None:
        """Drop a request. Its work may go on, but the result is not used."""
        job = self._jobs.pop(request_id, None)
        if job is not None:
            job.done.cancel()

    def finished(self) -> Iterator[tuple[RequestSpec, BaseException | None]]:
        """The requests prepared by now, in order of arrival, each with the error of its work or None."""
        for job in [job for job in self._jobs.values() if job.done.done()]:
            del self._jobs[job.request.id]
            yield job.request, job.done.exception()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _do(work: Sequence[Callable[[], object]]) -> None:
    for item in work:
        item()
