"""Drives an engine in this process with a workload, on the wall clock.

There is no HTTP, no tokenizer and no other process between them. A request arrives when it is due, even in
the midst of a step, and its waiting counts from then.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Protocol

from turnout.core.clock import Clock, monotonic
from turnout.core.engine.engine import Engine
from turnout.core.errors import RequestError
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.lab.compare.runs.run import EngineSample
from turnout.lab.compare.runs.samples import EngineSamples
from turnout.lab.jobs.job import Workload
from turnout.lab.results.record import Record
from turnout.lab.simulation.recording import Recording
from turnout.lab.simulation.traffic import Traffic

__all__ = ["Driver", "Requests"]

Sleep = Callable[[float], None]


class Requests(Protocol):
    """Makes the requests of a workload's jobs."""

    def spec(self, index: int, arrival: float) -> RequestSpec: ...

    def answered(self, index: int, tokens: list[int]) -> None: ...


class Driver:
    """Serves one workload, once."""

    def __init__(
        self,
        engine: Engine,
        workload: Workload,
        requests: Requests,
        *,
        clock: Clock = monotonic,
        sleep: Sleep = time.sleep,
        recording: Recording | None = None,
    ) -> None:
        """recording: records all that the engine does."""
        self._engine = engine
        self._jobs = workload.jobs
        self._requests = requests
        self._clock = clock
        self._sleep = sleep
        self._recording = recording
        self._traffic = Traffic(workload)
        self._due: list[tuple[float, int]] = []
        """Jobs that follow ones that have ended, with their times."""
        self._open: dict[str, Record] = {}
        self._outputs: dict[str, list[int]] = {}
        self._samples = EngineSamples()

    def records(self) -> Iterator[Record]:
        """In the order in which requests end."""
        self._start = self._clock()
        if self._recording is not None:
            self._recording.begin("", self._engine, self._start)
        self._first = self._traffic.first()
        self._upcoming = next(self._first, None)
        while True:
            yield from self._send()
            if self._engine.busy:
                yield from self._step()
            elif (at := self._next()) is not None:
                self._sleep(max(0.0, at - self._now()))
            else:
                break
        if self._recording is not None:
            self._recording.end()

    def samples(self) -> list[EngineSample]:
        return self._samples.all()

    # -------------------------------------------------------------- arrivals

    def _now(self) -> float:
        return self._clock() - self._start

    def _next(self) -> float | None:
        """When the next request is due."""
        times = [entry[0] for entry in (self._upcoming, self._due[0] if self._due else None) if entry]
        return min(times, default=None)

    def _send(self) -> Iterator[Record]:
        """Sends every request that is due; yields the records of those that the engine refuses."""
        while (at := self._next()) is not None and at <= self._now():
            if self._upcoming is not None and self._upcoming[0] == at:
                _, index = self._upcoming
                self._upcoming = next(self._first, None)
            else:
                _, index = heappop(self._due)
            yield from self._add(at, index)

    def _add(self, at: float, index: int) -> Iterator[Record]:
        spec = self._requests.spec(index, self._start + at)
        record = Record(self._jobs[index], index, due=at, sent=at, prompt_tokens=len(spec.prompt))
        try:
            self._engine.add(spec)
        except RequestError as error:
            record.error = str(error)
            yield self._ended(record)
        else:
            self._open[spec.id], self._outputs[spec.id] = record, []

    # -------------------------------------------------------------- steps

    def _step(self) -> Iterator[Record]:
        deltas, now = self._engine.step(), self._now()
        if self._recording is not None:
            self._recording.look(0, now)
        for delta in deltas:
            if (record := self._take(delta, now)) is not None:
                yield self._ended(record)
        stats = self._engine.stats()
        used = 1 - stats.kv_free / stats.kv_capacity
        self._samples.add(EngineSample(now, stats.running, stats.waiting, used))

    def _take(self, delta: Delta, now: float) -> Record | None:
        """The request's record, if it has ended."""
        record, output = self._open[delta.request_id], self._outputs[delta.request_id]
        record.token_times += [now] * len(delta.tokens)
        output += delta.tokens
        if not delta.finish_reason:
            return None
        record.error, record.output_tokens, record.digest = delta.error, len(output), _digest(output)
        del self._open[delta.request_id]
        self._requests.answered(record.index, self._outputs.pop(delta.request_id))
        return record

    def _ended(self, record: Record) -> Record:
        record.finished = record.token_times[-1] if record.served else self._now()
        for entry in self._traffic.after(record.index, record.finished):
            heappush(self._due, entry)
        return record


def _digest(tokens: list[int]) -> str:
    return blake2b(array("q", tokens).tobytes(), digest_size=8).hexdigest()
