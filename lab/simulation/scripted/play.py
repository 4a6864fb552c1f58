"""A scripted engine, served with arrivals on its virtual clock.

Scheduler, KV bookkeeping, policies and the step loop are those that serve. What is left out is the
arithmetic: the runner computes nothing and says how long it would have taken, and tokens follow a script.
So a thousand requests are served in seconds, the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.interfaces.kv import KVCache
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.plan import Plan
from turnout.core.types.request import RequestSpec
from turnout.lab.simulation.scripted.decoding import ScriptedBeams, ScriptedSampling
from turnout.lab.simulation.scripted.script import EOS, VOCABULARY
from turnout.lab.simulation.virtual_engine import VirtualRunner, virtual_engine

__all__ = ["Arrival", "Pace", "Play"]


@dataclass(frozen=True)
class Pace:
    """What a step takes, in seconds."""

    step: float = 0.02
    token: float = 0.0001
    """Computing a token that has no context."""
    context: int = 8192
    """Tokens of context at which attending to them takes as long as all else."""

    def computing(self, plan: Plan) -> float:
        """What the step's tokens take, beside what every step does."""
        pairs = sum((chunk.start + chunk.end) / 2 * len(chunk.tokens) for chunk in plan.chunks)
        return self.token * (plan.tokens + pairs / self.context)


class _PacedRunner(VirtualRunner):
    """A step takes what its pace says."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace
        self.computing = 0.0
        """Seconds, of all steps so far."""

    def seconds(self, plan: Plan) -> float:
        computing = self._pace.computing(plan)
        self.computing += computing
        return self._pace.step + computing


class Arrival(NamedTuple):
    at: float
    """Seconds on the virtual clock."""
    spec: RequestSpec


Then = Callable[[RequestSpec, float], Iterable[Arrival]]
"""What a finished request leads to, such as the next turn of its conversation."""


class Play:
    """An engine, its clock, and what is still to come."""

    def __init__(
        self,
        kv: KVCache,
        policy: SchedulingPolicy,
        predictor: LengthPredictor,
        capacity: Capacity,
        *,
        max_model_len: int,
        pace: Pace | None = None,
    ) -> None:
        self.kv = kv
        scheduler = Scheduler(policy, kv, capacity, predictor, strict=True)
        limits = Limits(
            max_model_len=max_model_len,
            vocab_size=VOCABULARY,
            max_waiting=2**31,
            eos_token_ids=frozenset({EOS}),
        )
        self._runner = _PacedRunner(pace or Pace())
        self.clock = self._runner.clock
        self.engine = virtual_engine(scheduler, self._runner, [ScriptedSampling(), ScriptedBeams()], limits)
        self._open: dict[str, tuple[RequestSpec, int]] = {}
        """By id, with the number of choices that have not ended."""
        self._order = count()
        self._todo: list[tuple[float, int, RequestSpec]] = []

    @property
    def computing(self) -> float:
        """Seconds that computing the tokens took so far, beside what every step takes."""
        return self._runner.computing

    def steps(self, arrivals: Iterable[Arrival], then: Then | None = None) -> Iterator[Engine]:
        """Serve it all; yields the engine after each step."""
        self._todo = [self._entry(arrival) for arrival in arrivals]
        heapify(self._todo)
        while self._todo or self.engine.busy:
            if not self.engine.busy:
                self.clock.now = max(self.clock.now, self._todo[0][0])
            self._arrive()
            for finished in self._step():
                for arrival in then(finished, self.clock.now) if then else ():
                    heappush(self._todo, self._entry(arrival))
            yield self.engine

    def _entry(self, arrival: Arrival) -> tuple[float, int, RequestSpec]:
        return arrival.at, next(self._order), arrival.spec

    def _arrive(self) -> None:
        while self._todo and self._todo[0][0] <= self.clock.now:
            _, _, spec = heappop(self._todo)
            self._open[spec.id] = (spec, spec.params.n)
            self.engine.add(spec)

    def _step(self) -> list[RequestSpec]:
        """One step; returns the requests that ended with it."""
        ended = []
        for delta in self.engine.step():
            if delta.error:
                raise RuntimeError(delta.error)
            if delta.finish_reason:
                spec, left = self._open[delta.request_id]
                self._open[delta.request_id] = (spec, left - 1)
                ended += [spec] if left == 1 else []
        return ended
