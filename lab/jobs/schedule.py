"""Decides which jobs are sent at their time, and which follow the turn before them."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.lab.jobs.job import Workload

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """Jobs, by their index in the workload."""

    heads: list[int]
    """Jobs that wait for no other job, by arrival."""
    followers: dict[int, int]
    """The job to send after each job that has one, when that has ended."""

    @classmethod
    def of(cls, workload: Workload) -> Schedule:
        """In a closed loop every later turn of a session follows; in an open one those with a time to think.

        Once a turn of a session follows, so do those after it, whatever they say.
        """
        heads: list[int] = []
        followers: dict[int, int] = {}
        last: dict[str, int] = {}
        following: set[str] = set()
        for index, job in enumerate(workload.jobs):
            before = last.get(job.session) if job.session else None
            if before is not None and (job.think is not None or workload.concurrency is not None):
                following.add(job.session)
            if before is not None and job.session in following:
                followers[before] = index
            else:
                heads.append(index)
            if job.session:
                last[job.session] = index
        return cls(heads, followers)
