"""The workload ``trace``: a file's requests, as they came or changed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.traces.reading import TraceFile, read_trace
from turnout.lab.traces.tokens import CountTokens
from turnout.lab.workloads import arrivals

__all__ = ["Trace"]


class Trace(BaseModel):
    """Requests that were once served: ShareGPT, Azure, BurstGPT, Mooncake, Qwen-Bailian, Vidur, Turnout."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    file: Path = Field(description="The trace; its first line tells its form.")
    skip: int = Field(0, ge=0, description="Requests to skip at the beginning.")
    requests: int | None = Field(None, ge=1, description="Requests to take; none: all.")
    turns: int | None = Field(None, ge=1, description="Turns to take of each session; none: all.")
    longest: int | None = Field(
        None, ge=2, description="Skip requests with more tokens of prompt and output."
    )
    speed: float = Field(1.0, gt=0, description="Factor by which arrivals and think times are faster.")
    rate: float | None = Field(
        None, gt=0, description="Sessions a second, as a Poisson process, instead of the trace's times."
    )
    concurrency: int | None = Field(
        None, ge=1, description="Requests at a time, in a closed loop, instead of the trace's times."
    )

    @field_validator("file", mode="before")
    @classmethod
    def _is_named(cls, file: object) -> object:
        """An empty path would be the working directory."""
        if file == "":
            raise ValueError("the path of a file is expected")
        return file

    @model_validator(mode="after")
    def _one_way_to_arrive(self) -> Trace:
        if self.rate and self.concurrency:
            raise ValueError("rate and concurrency exclude each other")
        return self

    def workload(self, seed: int, part: int, tokens: CountTokens) -> Workload:
        """`part` tells this trace's sessions from those of others in a mixture."""
        trace = read_trace(self.file, tokens)
        taken = list(
            islice(self._taken(trace.jobs), self.skip, self.skip + self.requests if self.requests else None)
        )
        if not taken:
            raise ConfigError(
                f"{self.file}: none of its {len(trace.jobs):,} requests is left by the options given"
            )
        if part:
            taken = [replace(job, session=f"{part}-{job.session}") if job.session else job for job in taken]
        concurrency = None if self.rate else self.concurrency or trace.concurrency
        timed = self._timed(taken, random.Random(f"{seed} {part} arrivals"))
        return Workload("trace", timed, concurrency, self._notes(trace))

    def _notes(self, trace: TraceFile) -> tuple[str, ...]:
        if not trace.skipped:
            return ()
        rows = len(trace.jobs) + trace.skipped
        without = "requests without a prompt or an output are skipped"
        return (f"{self.file}: {without}: {trace.skipped:,} of {rows:,}",)

    def _taken(self, jobs: Iterable[Job]) -> Iterator[Job]:
        turns: dict[str, int] = {}
        for job in jobs:
            if job.session:
                turns[job.session] = turns.get(job.session, 0) + 1
                if self.turns and turns[job.session] > self.turns:
                    continue
            if self.longest is None or job.prompt + job.output <= self.longest:
                yield job

    def _timed(self, jobs: list[Job], rng: random.Random) -> list[Job]:
        if self.rate is None:
            return [self._sped(job, job.at - jobs[0].at if self.skip else job.at) for job in jobs]
        times = arrivals.poisson(rng, self.rate)
        begins: dict[str, tuple[float, float]] = {}  # of sessions: now, and in the trace
        arrived = []
        for job in jobs:
            if not job.session or job.session not in begins:
                begins[job.session] = next(times), job.at
            now, then = begins[job.session]
            sped = self._sped(job, job.at - then)
            arrived.append(replace(sped, at=now + sped.at))
        return sorted(arrived, key=attrgetter("at"))

    def _sped(self, job: Job, at: float) -> Job:
        think = None if job.think is None else job.think / self.speed
        return replace(job, at=at / self.speed, think=think)
