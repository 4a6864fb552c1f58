"""Prepares requests that need slow work before they can be served, in threads beside the engine's loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from turnout.core import limits
from turnout.core.engine.logits_processing import PreparationWork
from turnout.core.errors import Overloaded
from turnout.core.types.request import RequestSpec

__all__ = ["POLL_SECONDS", "Preparation"]

POLL_SECONDS = 0.002
"""How often the engine looks for finished work while it has nothing else to do."""


class _Job(NamedTuple):
    """A request and its work."""

    request: RequestSpec
    work: Sequence[PreparationWork]
    done: Future[None]


class Preparation:
    """The requests that are being prepared. For use by the engine's thread alone.

    Each has a thread of its own, so that slow work does not hold up another request's.
    """

    def __init__(self, limit: int) -> None:
        """Prepare at most `limit` requests at a time, and no more than there are threads."""
        self._limit = min(limit, limits.PREPARED.whole)
        self._jobs: dict[str, _Job] = {}
        self._threads = ThreadPoolExecutor(limits.PREPARED.whole, thread_name_prefix="prepare")

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    @property
    def ids(self) -> list[str]:
        """Of the requests that are being prepared."""
        return list(self._jobs)

    def begin(self, request: RequestSpec, work: Sequence[PreparationWork]) -> None:
        """Start the work of a request. Raises Overloaded if too many requests are being prepared, or the
        system has no room for another thread."""
        if len(self._jobs) >= self._limit and request.resume is None:
            raise Overloaded(f"{self._limit} requests are being prepared already; try again later")
        try:
            done = self._threads.submit(_do, work)
        except RuntimeError as error:
            for item in work:  # it is in the executor's queue
                item.cancel()
            raise Overloaded(
                f"no thread can be started to prepare the request: {error}; try again"
            ) from error
        self._jobs[request.id] = _Job(request, work, done)

    def cancel(self, request_id: str, index: int | None = None) -> bool:
        """Drop a request, or one of its choices; returns whether others of them are still to come.

        The work of a request that is dropped is ended as far as it can be.
        """
        job = self._jobs.get(request_id)
        if job is None:
            return False
        if index is not None and (left := _without_choice(job.request, index)) is not None:
            self._jobs[request_id] = job._replace(request=left)
            return True
        del self._jobs[request_id]
        _end(job)
        return False

    def cancel_all(self) -> None:
        for request_id in list(self._jobs):
            self.cancel(request_id)

    def finished(self) -> Iterator[tuple[RequestSpec, BaseException | None]]:
        """The requests prepared by now, in order of arrival, each with the error of its work or None.

        The work of each lives on until the next is asked for, and so does what it found.
        """
        for job in [job for job in self._jobs.values() if job.done.done()]:
            del self._jobs[job.request.id]
            yield job.request, job.done.exception()

    def close(self) -> None:
        for job in self._jobs.values():
            _end(job)
        self._threads.shutdown(wait=False, cancel_futures=True)


def _without_choice(request: RequestSpec, index: int) -> RequestSpec | None:
    """The request without a choice that its client has given up; None if no other choice is left."""
    resume = request.resume
    if resume is None or not resume.choices:
        return None if request.params.n == 1 else request  # choices fork later
    left = [choice for choice in resume.choices if choice[0] != index]
    if not left:
        return None
    return msgspec.structs.replace(request, resume=msgspec.structs.replace(resume, choices=left))


def _end(job: _Job) -> None:
    job.done.cancel()
    for item in job.work:
        item.cancel()


def _do(work: Sequence[PreparationWork]) -> None:
    for item in work:
        item()
