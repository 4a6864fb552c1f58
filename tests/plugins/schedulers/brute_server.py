"""Policies by their definitions: a server without memory to run out of, which recomputes all it asks.

It knows nothing of the mechanism's classes. A definition ranks jobs from what happened to them; the
server serves them in that order within a step's budget and slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import inf

from toy import expected, toy_request

from turnout.core.types.request import RequestSpec


def answer(spec: RequestSpec) -> list[int]:
    return list(_answer(tuple(spec.prompt), spec.params.max_tokens))


@cache
def _answer(prompt: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
    return tuple(expected(toy_request("", list(prompt), "greedy", max_tokens))[0])


@dataclass(eq=False)
class Job:
    spec: RequestSpec
    arrival: float
    added: float
    """When the server heard of it."""
    answer: list[int]
    computed: int = 0
    times: list[float] = field(default_factory=list)
    """When each of its tokens came."""

    @classmethod
    def of(cls, spec: RequestSpec, now: float) -> Job:
        return cls(spec, now if spec.arrival is None else spec.arrival, now, answer(spec))

    @property
    def tokens(self) -> list[int]:
        return self.spec.prompt + self.answer[: len(self.times)]

    @property
    def pending(self) -> int:
        return len(self.tokens) - self.computed

    @property
    def due(self) -> float:
        after = self.spec.deadline
        if not self.times and self.spec.ttft_deadline is not None:
            after = self.spec.ttft_deadline
        return inf if after is None else self.arrival + after


@dataclass(eq=False)
class BruteServer:
    definition: Definition
    budget: int
    slots: int
    running: list[Job] = field(default_factory=list)
    preempted: list[Job] = field(default_factory=list)
    arrived: list[Job] = field(default_factory=list)
    known: set[tuple[int, ...]] = field(default_factory=lambda: {()})
    """Every prefix ever computed."""
    dropped: set[str] = field(default_factory=set)
    planned: list[float] = field(default_factory=list)
    """When each step was planned."""

    @property
    def waiting(self) -> list[Job]:
        return self.preempted + self.arrived

    @property
    def now(self) -> float:
        return self.planned[-1]

    def add(self, spec: RequestSpec, now: float) -> None:
        self.arrived.append(Job.of(spec, now))

    def cached(self, job: Job) -> int:
        return max(n for n in range(len(job.tokens)) if tuple(job.tokens[:n]) in self.known)

    def step(self, now: float) -> list[tuple[str, int]]:
        """Who got how many tokens computed, in order of service."""
        self.planned.append(now)
        granted = self._serve()
        for job, count in granted.items():
            self._compute(job, count)
        return [(job.spec.id, count) for job, count in granted.items()]

    def _serve(self) -> dict[Job, int]:
        granted: dict[Job, int] = {}
        budget, closed = self.budget, False
        evicted: list[Job] = []
        for job in self.definition.hopeless(self):
            self._forget(job)
            self.dropped.add(job.spec.id)
        for job, limit in self.definition.order(self):
            if budget <= 0:
                break
            if job in evicted:
                continue
            if job not in self.running:
                if closed:
                    continue
                while len(self.running) >= self.slots and (last := self.definition.victim(self, job)):
                    self._forget(last)
                    self.preempted.insert(0, last)
                    budget += granted.pop(last, 0)
                    evicted.append(last)
                if len(self.running) >= self.slots:
                    closed = self.definition.head_of_line
                    continue
                job.computed = self.cached(job)
                self.preempted = [other for other in self.preempted if other is not job]
                self.arrived = [other for other in self.arrived if other is not job]
                self.running.append(job)
            granted[job] = min(limit, budget, job.pending)
            budget -= granted[job]
        return granted

    def _compute(self, job: Job, count: int) -> None:
        job.computed += count
        self.known |= {tuple(job.tokens[:n]) for n in range(job.computed + 1)}
        if not job.pending:
            job.times.append(self.now)
            if len(job.times) == len(job.answer):
                self._forget(job)

    def _forget(self, job: Job) -> None:
        job.computed = 0
        for queue in (self.running, self.preempted, self.arrived):
            if job in queue:
                queue.remove(job)


# ------------------------------------------------------------------ definitions

Order = list[tuple[Job, float]]
"""Who is served in which order, and up to how many tokens."""


class Definition:
    """What a policy's docstring says, from the whole story each time it is asked."""

    head_of_line = True

    def order(self, server: BruteServer) -> Order:
        raise NotImplementedError

    def hopeless(self, server: BruteServer) -> list[Job]:
        return []

    def victim(self, server: BruteServer, job: Job) -> Job | None:
        return None


def _all(jobs: list[Job]) -> Order:
    return [(job, inf) for job in jobs]


class EarliestDeadline(Definition):
    def __init__(self, hopeless: str) -> None:
        self.drops = hopeless == "drop"

    def order(self, server: BruteServer) -> Order:
        return _all(sorted(server.running + server.waiting, key=lambda job: self.rank(server, job)))

    def hopeless(self, server: BruteServer) -> list[Job]:
        late = [job for job in server.running + server.waiting if job.due < server.now]
        return late if self.drops else []

    def rank(self, server: BruteServer, job: Job) -> tuple[bool, float, float]:
        return job.due < server.now, job.due, job.arrival

    def victim(self, server: BruteServer, job: Job) -> Job | None:
        later = [o for o in server.running if self.rank(server, o)[:2] > self.rank(server, job)[:2]]
        return _last(server.running if job in server.running else later, lambda o: self.rank(server, o))


class FeedbackQueue(Definition):
    """A job's level, by telling its story again from the start."""

    def __init__(self, quantum: int, levels: int, starve_limit: float) -> None:
        self.quantum, self.levels, self.starve_limit = quantum, levels, starve_limit

    def limit(self, level: int) -> float:
        return inf if level == self.levels - 1 else self.quantum * 2**level

    def rank(self, server: BruteServer, job: Job) -> tuple[int, float]:
        used = len(job.spec.prompt)
        level = min(i for i in range(self.levels) if used <= self.limit(i))
        last = job.arrival
        for now in server.planned:
            if now >= job.added and now - last > self.starve_limit and level > 0:
                level, used = 0, 0
            for _ in range(job.times.count(now)):
                used, last = used + 1, now
            if now in job.times and used >= self.limit(level):
                level, used = level + 1, 0
        return level, job.arrival

    def order(self, server: BruteServer) -> Order:
        return _all(sorted(server.running + server.waiting, key=lambda job: self.rank(server, job)))

    def victim(self, server: BruteServer, job: Job) -> Job | None:
        later = [o for o in server.running if self.rank(server, o) > self.rank(server, job)]
        return _last(server.running if job in server.running else later, lambda o: self.rank(server, o))


def _last(jobs: list[Job], rank: Callable[[Job], tuple[float, ...]]) -> Job | None:
    """The one with the greatest rank, of equals the newest admission."""
    return sorted(jobs, key=rank)[-1] if jobs else None


class LongestPrefix(Definition):
    def __init__(self, max_wait: float, max_queue: int) -> None:
        self.max_wait, self.max_queue = max_wait, max_queue

    def order(self, server: BruteServer) -> Order:
        waiting = server.waiting
        if len(waiting) <= self.max_queue:
            old = [job for job in waiting if server.now - job.arrival > self.max_wait]
            rest = [job for job in waiting if job not in old]
            by_prefix = sorted(rest, key=lambda job: -server.cached(job))
            waiting = sorted(old, key=lambda job: job.arrival) + by_prefix
        return _all(server.running + waiting)


class DecodesThenChunks(Definition):
    def __init__(self, chunk: int) -> None:
        self.chunk = chunk

    def order(self, server: BruteServer) -> Order:
        decodes = [job for job in server.running if job.pending == 1]
        order, left = _all(decodes), self.chunk
        for job in server.running + server.waiting:
            if job not in decodes and left > 0:
                needs = job.pending if job in server.running else job.pending - server.cached(job)
                order.append((job, min(left, needs)))
                left -= min(left, needs)
        return order


class PromptsThenDecodes(Definition):
    def order(self, server: BruteServer) -> Order:
        decodes = [job for job in server.running if job.pending == 1]
        begun = [job for job in server.running if job.pending > 1]
        place = len(server.running) < server.slots
        if begun or (server.waiting and place):
            return _all(begun + server.waiting)
        return _all(decodes)


class OneBatchAtATime(Definition):
    head_of_line = False

    def __init__(self, size: int) -> None:
        self.size = size
        self.batch: list[str] = []

    def order(self, server: BruteServer) -> Order:
        alive = server.running + server.waiting
        if not any(job.spec.id in self.batch for job in alive):
            self.batch = [job.spec.id for job in server.waiting[: self.size]]
        return _all([job for job in alive if job.spec.id in self.batch])
