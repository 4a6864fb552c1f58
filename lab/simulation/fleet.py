"""Replicas behind a router, and the order in which things happen to them.

::

    heap   (time, what, …)   what: a request ended · one is sent · a replica takes a step,
                             in this order at one time

A replica takes a step when it begins, so its clock is ahead until the end; what ended with the step is told
when the clock of the world comes there. Steps in which nothing happens are taken several at once, and those
that a request comes before are taken back. What is sent meanwhile is planned in its next step, as it is in a
server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, RequestError
from turnout.core.interfaces.kv import PrefixAnnouncer
from turnout.core.interfaces.router import Routable, Router
from turnout.core.registry.registry import Registry
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.jobs.job import Job, Workload, seed_of
from turnout.lab.jobs.prompts import Prompts
from turnout.lab.results.record import Record
from turnout.lab.simulation.assembly import SimulatedEngine, build_simulated
from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.news import News
from turnout.lab.simulation.recording import Recording
from turnout.lab.simulation.replica import SimulatedReplica, StepWatch, Totals
from turnout.lab.simulation.routing import Routing
from turnout.lab.simulation.script import Script
from turnout.lab.simulation.traffic import Traffic

__all__ = ["Fleet", "Mix", "Specs", "announcers_of"]

ENDED, SENT, STEP = range(3)


class Specs:
    """Makes requests as engines get them: greedy, and exactly as long as their jobs say."""

    def __init__(self) -> None:
        self._params: dict[int, SamplingParams] = {}
        """By tokens of output: of most lengths there are many."""

    def make(self, index: int, job: Job, prompt: list[int], seed: int, arrival: float | None) -> RequestSpec:
        """One that generates nothing costs as one of a token.

        arrival: as a server notes it, on the engine's clock, which may be in the midst of a step; None: the
        engine takes the time when it hears of the request.
        """
        params = self._params.get(job.output)
        if params is None:
            params = SamplingParams(temperature=0.0, max_tokens=max(1, job.output), ignore_eos=True)
            self._params[job.output] = params
        return RequestSpec(
            id=str(index),
            prompt=prompt,
            params=params,
            seed=seed,
            priority=job.priority,
            client=job.client,
            arrival=arrival,
            deadline=job.deadline,
            ttft_deadline=job.ttft_deadline,
        )


class Mix:
    """Makes a workload's requests as they are sent."""

    def __init__(
        self, workload: Workload, seed: int, vocabulary: int, only: Mapping[int, Job] | None = None
    ) -> None:
        """`only`: the jobs that are sent, by index; the workload then has none."""
        self.jobs = workload.jobs if only is None else only
        self._prompts = Prompts(self.jobs, seed, vocabulary)
        self._seed = seed
        self._specs = Specs()

    def spec(self, index: int, arrival: float | None = None) -> RequestSpec:
        """As `Specs.make` says."""
        return self._specs.make(index, self.jobs[index], self.prompt(index), self.seed_of(index), arrival)

    def prompt(self, index: int) -> list[int]:
        """Turns of a session are asked for in order, and once."""
        return self._prompts.of(index)

    def routable(self, index: int, prompt: Sequence[int]) -> Routable:
        """A request as routers see it."""
        job = self.jobs[index]
        return Routable(str(index), prompt, job.output, job.session, job.client)

    def seed_of(self, index: int) -> int:
        """Of a request's output."""
        return seed_of(self._seed, index)

    def end(self, record: Record, script: Script) -> None:
        """Notes what a request was answered, by which its session goes on."""
        seed = self.seed_of(record.index)
        if not record.error:
            record.digest = f"{seed}:{record.prompt_tokens}:{record.output_tokens}"
        if record.job.session:
            output = script.tokens(seed, record.prompt_tokens, record.output_tokens)
            self._prompts.answered(record.index, output)


class Fleet:
    """Serves one workload, once."""

    def __init__(
        self,
        config: EngineConfig,
        cost: CostModel,
        registry: Registry,
        router: Router,
        replicas: Sequence[str],
        *,
        fast_forward: bool = True,
        watch: StepWatch | None = None,
        recording: Recording | None = None,
    ) -> None:
        """`replicas`: their names; `watch` is told of every step, and `recording` records the engines."""
        engines = [build_simulated(config, cost, registry) for _ in replicas]
        for engine, name in zip(engines, replicas, strict=True):
            engine.engine.locate(replica=name)
            if recording is not None:
                recording.begin(name, engine.engine)
        self._recording = recording
        self._engines = engines
        self._script = engines[0].script
        self._replicas = [
            SimulatedReplica(engine, fast_forward=fast_forward, watch=watch) for engine in engines
        ]
        self._routing = Routing(router, replicas)
        announcers = announcers_of(engines) if router.reads_caches and len(engines) > 1 else []
        self._news = News(engines, announcers) if router.watches else None
        self._heap: list[tuple[float, int, int, int, Record | None]] = []
        """Time, what, an order of equals, of which replica or job, and what was measured of it."""
        self._order = count()
        self._next_step = [-1] * len(engines)
        """Of each replica: the order of its next step in the heap."""
        self._place: dict[int, tuple[int, int]] = {}
        """Of jobs that are being served: the replica, and the tokens that it may become."""

    def totals(self) -> Totals:
        return sum((replica.totals() for replica in self._replicas), Totals())

    def serve(self, traffic: Traffic, mix: Mix) -> Iterator[Record]:
        """Records in the order in which requests end."""
        begins = traffic.first()
        upcoming = next(begins, None)
        heap = self._heap
        while heap or upcoming:
            if upcoming and (not heap or (upcoming[0], SENT) <= heap[0][:2]):
                self._send(*upcoming, mix)
                upcoming = next(begins, None)
                continue
            time, what, order, number, record = heappop(heap)
            if what == STEP:
                if order == self._next_step[number]:  # else that step was taken back
                    self._step(number, upcoming[0] if upcoming else math.inf)
            elif what == SENT:
                self._send(time, number, mix)
            else:
                assert record is not None
                self._end(record, mix)
                for at, index in traffic.after(number, time):
                    self._push(at, SENT, index)
                yield record
        if self._recording is not None:
            self._recording.end()
        for engine in self._engines:
            engine.engine.close()

    def _push(self, time: float, what: int, number: int, record: Record | None = None) -> int:
        order = next(self._order)
        heappush(self._heap, (time, what, order, number, record))
        return order

    def _push_end(self, time: float, record: Record) -> None:
        # In an order that does not depend on which replica is looked at first.
        heappush(self._heap, (time, ENDED, record.index, record.index, record))

    def _push_step(self, number: int) -> None:
        self._next_step[number] = self._push(self._replicas[number].now, STEP, number)

    def _send(self, now: float, index: int, mix: Mix) -> None:
        spec, job = mix.spec(index, now), mix.jobs[index]
        record = Record(job, index, due=now, sent=now, prompt_tokens=len(spec.prompt))
        number = self._choose(now, mix.routable(index, spec.prompt))
        replica, tokens = self._replicas[number], len(spec.prompt) + job.output
        idle = not replica.busy
        if replica.take_back(now):
            self._push_step(number)
        try:
            replica.add(spec, record)
        except RequestError as error:
            record.finished, record.error = now, str(error)
            self._push_end(now, record)
            return
        self._place[index] = number, tokens
        self._routing.count(number, 1, tokens)
        if idle:
            self._push_step(number)

    def _choose(self, now: float, request: Routable) -> int:
        if self._news is not None:
            self._routing.take(self._news.until(now))
        return self._routing.choose(request)

    def _step(self, number: int, sent: float) -> None:
        """Takes steps of a replica up to the next event. `sent`: when `upcoming` is."""
        replica, heap = self._replicas[number], self._heap
        while True:
            for record in replica.step():
                self._push_end(replica.now, record)
            if self._news is not None and replica.changed:
                self._news.step(number, replica.now, last=not replica.busy)
            if self._recording is not None:
                self._recording.look(number, replica.now)
            if not replica.busy:
                return
            replica.run_ahead()
            now = replica.now
            if now >= sent or (heap and now >= heap[0][0]):
                self._push_step(number)
                return

    def _end(self, record: Record, mix: Mix) -> None:
        number, tokens = self._place.pop(record.index, (0, 0))
        if tokens:
            self._routing.count(number, -1, -tokens)
        mix.end(record, self._script)


def announcers_of(engines: Sequence[SimulatedEngine]) -> list[PrefixAnnouncer]:
    """The KV caches, which tell what they keep from now on. Raises ConfigError for one that cannot."""
    found = [engine.scheduler.kv for engine in engines]
    announcers: list[PrefixAnnouncer] = [
        cache for cache in found if isinstance(cache, PrefixAnnouncer) and cache.announces
    ]
    if len(announcers) < len(found):
        raise ConfigError(
            "the router asks which prefixes engines keep, and the KV backend does not tell; choose kv=paged "
            "with prefix caching, or another router"
        )
    for cache in announcers:
        cache.announce()
    return announcers
