"""One engine of a simulation: requests go in, and what was measured of them comes out."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from turnout.core.interfaces.observers import StepRecord
from turnout.core.types.messages import Delta
from turnout.core.types.request import Request, RequestSpec
from turnout.lab.results.record import Record
from turnout.lab.simulation.assembly import SimulatedEngine
from turnout.lab.simulation.fast_forward import FastForward, can_fast_forward

__all__ = ["SimulatedReplica", "StepWatch", "Totals"]

StepWatch = Callable[[StepRecord], object]


@dataclass
class Totals:
    """Over all replicas."""

    steps: int = 0
    preemptions: int = 0
    swap_outs: int = 0
    """Of the preemptions, those that kept what was computed."""
    lookups: int = 0
    """Prompt tokens of admissions."""
    hits: int = 0
    """Of those looked up, found in memory."""
    policy_faults: int = 0
    kv_capacity: int = 0
    """Positions of the KV pools."""

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            *(mine + its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True))
        )


class SimulatedReplica:
    """An engine on its own clock, ahead of the world's by a step and by those that can be taken back."""

    def __init__(
        self, simulated: SimulatedEngine, *, fast_forward: bool = True, watch: StepWatch | None = None
    ) -> None:
        self.simulated = simulated
        self._engine, self._clock = simulated.engine, simulated.clock
        self._watch = watch
        self._open: dict[str, Record] = {}
        self._times: dict[str, array[float]] = {}
        """When the tokens of those came, in a third of a list's memory."""
        self._fast_forward = (
            FastForward(simulated, self._on_tokens, watched=watch is not None)
            if fast_forward and can_fast_forward(simulated)
            else None
        )

    @property
    def busy(self) -> bool:
        return self._engine.busy

    @property
    def now(self) -> float:
        return self._clock.now

    def add(self, spec: RequestSpec, record: Record) -> None:
        """Raises RequestError where the engine refuses it. `record` is filled until the request has ended."""
        self._clock.now = max(self._clock.now, record.sent)
        self._engine.add(spec)
        self._open[spec.id], self._times[spec.id] = record, array("d")
        if self._fast_forward is not None:
            self._fast_forward.unsettle()

    def run_ahead(self) -> None:
        """Take steps in which nothing happens unless a request is sent: then call `take_back`."""
        if self._fast_forward is not None:
            self._fast_forward.run_ahead()

    def take_back(self, now: float) -> bool:
        """Take back steps that were run ahead and begin at `now` or later; returns whether there are any."""
        return self._fast_forward is not None and self._fast_forward.take_back(now)

    @property
    def changed(self) -> bool:
        """Whether the last step may have changed what `Replica` tells of the engine."""
        return self._fast_forward is None or self._fast_forward.changed

    def step(self) -> list[Record]:
        """Take one, and return the records of those that ended with it."""
        if self._watch is None:
            return self._stepped()
        runner, started = self.simulated.runner, self._clock.now
        steps = runner.steps
        ended = self._stepped()
        if runner.steps > steps:
            self._watch(self._step_record(started))
        return ended

    def _stepped(self) -> list[Record]:
        fast_forward = self._fast_forward
        if fast_forward is None:
            return self._taken(self._engine.step())
        if fast_forward.take():
            return []
        steps = self.simulated.runner.steps
        ended = self._taken(self._engine.step())
        fast_forward.after(self.simulated.runner.steps > steps)
        return ended

    def _step_record(self, started: float) -> StepRecord:
        """As an engine builds it, with the fast-forwarded requests counted."""
        runner, scheduler = self.simulated.runner, self._engine.scheduler
        return StepRecord(
            number=runner.steps,
            started=started,
            ended=self._clock.now,
            tokens=runner.work.tokens,
            rows=runner.work.rows,
            sequences=runner.work.sequences,
            running=scheduler.queues.running_count,
            waiting=scheduler.queues.waiting_count,
            kv_free=scheduler.kv.free,
        )

    def totals(self) -> Totals:
        stats, kv = self._engine.stats(), self._engine.scheduler.kv.snapshot()
        return Totals(
            steps=self.simulated.runner.steps,
            preemptions=stats.preemptions,
            swap_outs=stats.swap_outs,
            lookups=kv.lookups,
            hits=kv.hits,
            policy_faults=stats.policy_faults,
            kv_capacity=stats.kv_capacity,
        )

    def _taken(self, deltas: list[Delta]) -> list[Record]:
        now, ended = self._clock.now, []
        for delta in deltas:
            record = self._open[delta.request_id]
            if record.job.output:
                self._times[delta.request_id].extend([now] * len(delta.tokens))
            if delta.finish_reason:
                record.finished, record.error = now, delta.error
                record.token_times = self._times.pop(delta.request_id).tolist()
                record.output_tokens = len(record.token_times)
                ended.append(self._open.pop(delta.request_id))
        return ended

    def _on_tokens(self, request: Request, times: Iterable[float]) -> None:
        self._times[request.id].extend(times)
