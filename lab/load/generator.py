"""The load generator: sends a workload to a server at its times, and records what comes back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnout.core.process import freeze_garbage
from turnout.lab.jobs.job import Workload
from turnout.lab.jobs.prompts import Prompts
from turnout.lab.jobs.schedule import Schedule
from turnout.lab.load.checks import Checks, lag_p99
from turnout.lab.load.contents import Contents, contents_for
from turnout.lab.load.sender import Sender
from turnout.lab.load.target import Target
from turnout.lab.results.record import Record

__all__ = ["LoadRun", "run_load"]

MAX_AHEAD = 128
"""Bodies of requests that are written before they are due."""
QUIET_SECONDS = 0.003
"""Seconds until the next request is due, above which there is time to write another body."""
POLLED_SECONDS = 0.0015
"""Seconds before a request is due in which the loop no longer sleeps."""


@dataclass(frozen=True)
class LoadRun:
    """What a run measured."""

    records: list[Record]
    """By the index of their jobs."""
    duration: float
    """Seconds from the beginning to the last answer."""
    cpu: float
    """Seconds of CPU time that the generator itself took meanwhile."""
    lag: float
    """Seconds by which the generator itself was late in sending, p99."""
    warnings: list[str]
    interrupted: bool = False
    """Ctrl-C ended it: requests that were being served then, or were still to come, are not in it."""


def run_load(
    workload: Workload,
    target: Target,
    prompts: Prompts,
    *,
    timeout: float | None = None,
    progress: Callable[[Record], None] = lambda record: None,
) -> LoadRun:
    """Blocks until every request has ended, or Ctrl-C. `timeout`: of a request, in seconds."""
    return asyncio.run(_Run(workload, target, prompts, progress).play(timeout))


class _Run:
    def __init__(
        self, workload: Workload, target: Target, prompts: Prompts, progress: Callable[[Record], None]
    ) -> None:
        self._workload = workload
        self._schedule = Schedule.of(workload)
        self._target = target
        self._contents: Contents = contents_for(target, workload.jobs, prompts)
        self._progress = progress
        self._checks = Checks(target)
        self._records: list[Record] = []
        self._begin = 0.0
        self._interrupted = False

    async def play(self, timeout: float | None) -> LoadRun:
        async with Sender(self._target, self._now, timeout) as self._sender:
            with freeze_garbage():
                bodies = _Ahead(self._schedule.heads, self._body)
                self._begin, cpu = time.perf_counter(), time.process_time()
                await self._all(bodies)
                cpu = time.process_time() - cpu
        records = sorted(self._records, key=lambda record: record.index)
        duration = max((record.finished for record in records), default=0.0)
        warnings = self._checks.warnings(records)
        return LoadRun(records, duration, cpu, lag_p99(records), warnings, self._interrupted)

    async def _all(self, bodies: _Ahead) -> None:
        try:
            await (self._open(bodies) if self._workload.concurrency is None else self._closed(bodies))
        except asyncio.CancelledError:  # how Ctrl-C comes here; a second one is not caught
            self._interrupted = True

    def _now(self) -> float:
        return time.perf_counter() - self._begin

    def _body(self, index: int) -> bytes:
        return self._target.request(self._workload.jobs[index], self._contents.of(index))

    # -------------------------------------------------------------- when requests are sent

    async def _open(self, bodies: _Ahead) -> None:
        async with asyncio.TaskGroup() as tasks:
            for index in self._schedule.heads:
                due = self._workload.jobs[index].at
                body = bodies.pop()
                while due - self._now() > QUIET_SECONDS and bodies.write_one():
                    await asyncio.sleep(0)
                await self._until(due)
                tasks.create_task(self._session(index, due, body))

    async def _closed(self, bodies: _Ahead) -> None:
        heads = iter(self._schedule.heads)

        async def worker() -> None:
            for index in heads:
                await self._session(index, self._now(), bodies.pop())

        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._workload.concurrency or 0):
                tasks.create_task(worker())

    async def _session(self, index: int, due: float, body: bytes) -> None:
        """Sends a job, and those that follow it."""
        while True:
            record, answer = await self._sender.send(self._workload.jobs[index], index, due, body)
            self._records.append(record)
            self._checks.add(record, answer)
            self._contents.answered(index, answer.text)
            self._progress(record)
            follower = self._schedule.followers.get(index)
            if follower is None:
                return
            index, due = follower, record.finished + (self._workload.jobs[follower].think or 0.0)
            body = self._body(index)
            await self._until(due)

    async def _until(self, due: float) -> None:
        """Sleeps until shortly before, since timers are late by up to a millisecond; then polls the loop."""
        if (left := due - self._now()) > POLLED_SECONDS:
            await asyncio.sleep(left - POLLED_SECONDS)
        while self._now() < due:
            await asyncio.sleep(0)


class _Ahead:
    """The bodies of requests to come, some of them written ahead."""

    def __init__(self, indices: Sequence[int], write: Callable[[int], bytes]) -> None:
        self._todo = deque(indices)
        self._write = write
        self._written: deque[bytes] = deque()
        while self.write_one():
            pass

    def write_one(self) -> bool:
        """False when enough are written."""
        if len(self._written) >= MAX_AHEAD or not self._todo:
            return False
        self._written.append(self._write(self._todo.popleft()))
        return True

    def pop(self) -> bytes:
        if not self._written:
            self.write_one()
        return self._written.popleft()
