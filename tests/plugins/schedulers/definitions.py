"""What the docstrings of ranking policies say, in the plainest code that says it.

Nothing here is incremental or clever, and nothing is shared with the policies. A definition hears what
happens (arrivals, admissions, tokens, in the words of `traces.Event`) and says who is next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from toy import expected
from traces import Event

from turnout.core.types.request import RequestSpec

INPUT, OUTPUT = 1, 2
JOINS = ("arrive", "rejoin")


@dataclass(eq=False)
class Job:
    spec: RequestSpec
    produced: int = 0
    was_admitted: bool = False
    fresh: bool = False
    """Admitted in this step: nothing of it is computed."""

    @cached_property
    def length(self) -> int:
        return len(expected(self.spec)[0])


class Definition:
    """The first of `waiting`, preempted ones and then arrivals, is next; no request is evicted for it."""

    def hear(self, event: Event, job: Job, waiting: list[Job]) -> None:
        """`waiting` is as it was before the event."""

    def first(self, waiting: list[Job], now: float) -> Job:
        raise NotImplementedError

    def evicts(self, job: Job, running: list[Job]) -> Job | None:
        return None


@dataclass
class Aged(Definition):
    """sjf and ljf."""

    by: str
    sign: int
    aging: float

    def first(self, waiting, now):
        return min(waiting, key=lambda job: round(self.rank(job, now), 9))

    def rank(self, job, now):
        length = len(job.spec.prompt) if self.by == "prompt" else job.spec.params.max_tokens
        return self.sign * length - self.aging * (now - job.spec.arrival)


@dataclass
class HighestRatio(Definition):
    prompt_cost: float
    speed: float = 17.0
    """Anything; it cancels."""

    def first(self, waiting, now):
        return max(waiting, key=lambda job: round(self.ratio(job, now), 9))

    def ratio(self, job, now):
        est = (job.spec.params.max_tokens + self.prompt_cost * len(job.spec.prompt)) / self.speed
        return (now - job.spec.arrival + est) / est


@dataclass
class LeastLeft(Definition):
    aging: float
    preemptive: bool = True

    def first(self, waiting, now):
        return min(waiting, key=lambda job: round(self.rank(job, computed=0), 9))

    def evicts(self, job, running):
        if not self.preemptive:
            return None
        last = max(running, key=lambda other: round(self.spared(other), 9))
        return last if self.rank(job, computed=0) < self.spared(last) else None

    def spared(self, job):
        # Of one that decodes, all is computed but its newest token.
        computed = 0 if job.fresh else len(job.spec.prompt) + job.produced - 1
        return self.rank(job, computed) - computed

    def rank(self, job, computed):
        work = len(job.spec.prompt) + job.spec.params.max_tokens - computed
        return work + self.aging * job.spec.arrival


class MostUrgent(Definition):
    def first(self, waiting, now):
        return min(waiting, key=self.urgency)

    def evicts(self, job, running):
        last = max(running, key=self.urgency)
        return last if last.spec.priority > job.spec.priority else None

    def urgency(self, job):
        return job.spec.priority, job.spec.arrival


@dataclass
class VirtualTokenCounter(Definition):
    """Algorithm 2 of the paper, line by line."""

    weights: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    left_last: str | None = None

    def hear(self, event, job, waiting):
        client, queued = job.spec.client, [other.spec.client for other in waiting]
        own = self.counters.setdefault(client, 0)
        if event.kind in JOINS and client not in queued:
            if queued:
                self.counters[client] = max(own, min(self.counters[other] for other in queued))
            elif self.left_last is not None:
                self.counters[client] = max(own, self.counters[self.left_last])
        elif event.kind == "admit":
            self.left_last = client
            if not job.was_admitted:
                self.charge(client, INPUT * len(job.spec.prompt))
        elif event.kind == "tokens":
            self.charge(client, OUTPUT * event.tokens)

    def charge(self, client, service):
        self.counters[client] += service / self.weights.get(client, 1)

    def first(self, waiting, now):
        return min(waiting, key=lambda job: self.counters[job.spec.client])


# ------------------------------------------------------------------ telling the whole story


def simulate(definition: Definition, trace: list[RequestSpec], slots: int) -> list[Event]:
    """What happens where only slots are scarce and every admitted request gets a token each second."""
    journal: list[Event] = []
    coming, running = [Job(spec) for spec in trace], list[Job]()
    waiting: list[Job] = []
    now = 0.0

    def note(kind: str, job: Job, tokens: int = 0) -> None:
        journal.append(Event(now, kind, job.spec.id, tokens))
        definition.hear(journal[-1], job, waiting)

    while coming or waiting or running:
        while coming and coming[0].spec.arrival <= now:
            note("arrive", coming[0])
            waiting.append(coming.pop(0))
        evicted: list[Job] = []
        while candidates := [job for job in waiting if job not in evicted]:
            job = definition.first(candidates, now)
            while len(running) >= slots and (last := definition.evicts(job, running)):
                note("preempt", last)
                running.remove(last)
                waiting.insert(0, last)
                evicted.append(last)
            if len(running) >= slots:
                break
            waiting.remove(job)
            running.append(job)
            note("admit", job)
            job.was_admitted = job.fresh = True
        for job in list(running):
            job.produced, job.fresh = job.produced + 1, False
            note("tokens", job, 1)
            if job.produced == job.length:
                running.remove(job)
        now += 1
    return journal


def retold(definition: Definition, journal: list[Event], specs: dict[str, RequestSpec]) -> list[tuple]:
    """Each admission of a journal, with the one that the definition would have made in its place."""
    jobs = {name: Job(spec) for name, spec in specs.items()}
    waiting: list[Job] = []
    preempted: list[Job] = []
    pairs = []
    for now, step in groupby(journal, key=lambda event: event.time):
        events = list(step)
        # A request that joined the queue since the last plan is there for this one, preempted ones in front.
        for place, job in enumerate(preempted):
            definition.hear(Event(now, "rejoin", job.spec.id), job, waiting)
            waiting.insert(place, job)
        preempted = []
        for event in events:
            job = jobs[event.id]
            if event.kind == "admit":
                pairs.append((now, event.id, definition.first(waiting, now).spec.id))
                waiting.remove(job)
            definition.hear(event, job, waiting)
            if event.kind == "arrive":
                waiting.append(job)
            elif event.kind == "preempt":
                preempted.insert(0, job)
            job.was_admitted |= event.kind == "admit"
            job.produced += event.tokens
    return pairs
