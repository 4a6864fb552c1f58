"""When a workload's jobs are sent: at their time, after what they follow, or as soon as there is room."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from turnout.lab.job import Job, Workload

__all__ = ["Traffic"]


class Traffic:
    """Whoever plays a workload asks what is due from the beginning, and what follows from each job that
    ended."""

    def __init__(self, workload: Workload, only: Collection[int] | None = None) -> None:
        """`only`: jobs to send, by their index; the others are somebody else's."""
        self._jobs = workload.jobs
        self._closed = workload.concurrency is not None
        self._next = _followers(self._jobs, every_turn=self._closed)
        followers = set(self._next.values())
        mine = range(len(self._jobs)) if only is None else sorted(only)
        self._begins = iter([index for index in mine if index not in followers])
        self._concurrency = workload.concurrency or 0

    def first(self) -> Iterator[tuple[float, int]]:
        """When to send which job, in order of time, as far as that depends on no other."""
        if not self._closed:
            return ((self._jobs[index].at, index) for index in self._begins)
        return ((0.0, index) for index in islice(self._begins, self._concurrency))

    def after(self, index: int, now: float) -> Iterator[tuple[float, int]]:
        """What a job that ended leads to."""
        follower = self._next.get(index)
        if follower is not None:
            yield now + (self._jobs[follower].think or 0.0), follower
        elif self._closed:
            begin = next(self._begins, None)
            if begin is not None:
                yield now, begin


def _followers(jobs: Sequence[Job], *, every_turn: bool) -> dict[int, int]:
    """By job, the turn of its session that waits for its end."""
    last: dict[str, int] = {}
    followers: dict[int, int] = {}
    for index, job in enumerate(jobs):
        if job.session:
            if job.session in last and (every_turn or job.think is not None):
                followers[last[job.session]] = index
            last[job.session] = index
    return followers
