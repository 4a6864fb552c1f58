"""Times at which a workload's jobs are sent: their own, after the job they follow, or when there is room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from turnout.lab.jobs.job import Job, Workload
from turnout.lab.jobs.schedule import Schedule

__all__ = ["Traffic"]


class Traffic:
    """Tells the driver of a workload what is due at first, and what follows each job that has ended."""

    def __init__(self, workload: Workload, only: Mapping[int, Job] | None = None) -> None:
        """`only`: the jobs to send, by index; none waits for another, and other replicas serve the rest."""
        schedule = Schedule.of(workload) if only is None else Schedule(sorted(only), {})
        self._jobs = workload.jobs if only is None else only
        self._followers = schedule.followers
        self._begins = iter(schedule.heads)
        self._concurrency = workload.concurrency

    @property
    def follows(self) -> bool:
        """Whether what is sent, or when, depends on when something else has ended."""
        return bool(self._followers) or self._concurrency is not None

    def first(self) -> Iterator[tuple[float, int]]:
        """When to send which job, in order of time, as far as that depends on no other."""
        if self._concurrency is None:
            return ((self._jobs[index].at, index) for index in self._begins)
        return ((0.0, index) for index in islice(self._begins, self._concurrency))

    def after(self, index: int, now: float) -> Iterator[tuple[float, int]]:
        """What to send, and when, after a job that has ended."""
        follower = self._followers.get(index)
        if follower is not None:
            yield now + (self._jobs[follower].think or 0.0), follower
        elif self._concurrency is not None:
            begin = next(self._begins, None)
            if begin is not None:
                yield now, begin
