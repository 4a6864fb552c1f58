"""What is simulated is what is served: the same plans, step by step, as the engine with its model makes."""

from __future__ import annotations

from typing import Any

import pytest
from simulations import SECONDS

from turnout.config import EngineConfig
from turnout.core.interfaces.compute import Runner
from turnout.core.registry.registry import Registry
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import RequestSpec
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.results.record import Record
from turnout.lab.simulation.assembly import build_simulated
from turnout.lab.simulation.cost import CostModel, work_of
from turnout.lab.simulation.fleet import Mix
from turnout.lab.simulation.replica import SimulatedReplica
from turnout.lab.simulation.virtual_engine import VirtualClock
from turnout.runner.assembly import build_engine

Planned = list[tuple[list[tuple[str, int, int, int]], list[object]]]


class Watched(Runner):
    """Writes plans down; moves a clock that nothing else moves."""

    def __init__(self, runner: Runner, clock: VirtualClock | None = None) -> None:
        self.runner, self.clock = runner, clock
        self.plans: Planned = []
        self.steps = 0
        self.queues: Any = None

    def run(self, plan: Plan) -> Logits:
        chunks = [(c.sequence.request.id, c.start, len(c.tokens), c.rows) for c in plan.chunks]
        self.plans.append((chunks, list(plan.moves)))
        logits = self.runner.run(plan)
        if self.clock is not None:
            work = work_of(plan)
            work.running, work.waiting = self.queues.running_count, self.queues.waiting_count
            self.clock.now += SECONDS.of(work)
        return logits


def serve(engine: Any, clock: VirtualClock, arrivals: list[tuple[float, RequestSpec]]) -> None:
    todo = list(arrivals)
    while todo or engine.busy:
        if not engine.busy:
            clock.now = max(clock.now, todo[0][0])
        while todo and todo[0][0] <= clock.now:
            engine.add(todo.pop(0)[1])
        engine.step()


def arrivals(work: list[Job], vocabulary: int) -> list[tuple[float, RequestSpec]]:
    mix = Mix(Workload("w", work), 0, vocabulary)
    return [(job.at, mix.spec(index)) for index, job in enumerate(work)]


WORK = [
    Job(0.004 * i, 20 + 37 * i % 90, 3 + 11 * i % 40, blocks=(i % 2,) if i % 3 else (), block_size=32)
    for i in range(16)
]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scheduler": "sarathi:chunk=16"},
        pytest.param({"scheduler": "srpt"}, marks=pytest.mark.slow),
        pytest.param({"scheduler": "prefill-first"}, marks=pytest.mark.slow),
        pytest.param({"scheduler": "mlfq"}, marks=pytest.mark.slow),
        {"kv": "contiguous"},
        {"swap_memory": 8 * 2**20, "preemption": "swap"},
    ],
    ids=str,
)
def test_plans_are_those_of_the_engine_with_its_model(options: dict[str, Any]) -> None:
    common = {"max_model_len": 256, "max_num_batched_tokens": 64, "max_num_seqs": 8, "kv_memory": 4 * 2**20}
    config = EngineConfig(strict_plugins=True, dtype="float32", **{**common, **options})
    clock = VirtualClock()
    real = build_engine(config, clock=clock)
    watched = real.engine.runner = Watched(real.engine.runner, clock)
    watched.queues = real.engine.scheduler.queues
    serve(real.engine, clock, arrivals(WORK, real.spec.vocab_size))

    cost = CostModel(name="", device="cpu", kv_memory=1, itemsize=4, model=real.spec, seconds=SECONDS)
    simulated = build_simulated(config, cost, Registry.load())
    written = simulated.engine.runner = Watched(simulated.runner)
    serve(simulated.engine, simulated.clock, arrivals(WORK, real.spec.vocab_size))

    assert written.plans == watched.plans
    assert simulated.clock.now == pytest.approx(clock.now)
    assert simulated.engine.stats().preemptions == real.engine.stats().preemptions


def test_a_replica_measures_what_its_engine_does() -> None:
    real = build_engine(EngineConfig(max_model_len=256))
    cost = CostModel(name="", device="cpu", kv_memory=2**24, itemsize=4, model=real.spec, seconds=SECONDS)
    replica = SimulatedReplica(build_simulated(EngineConfig(max_model_len=256), cost, Registry.load()))
    (at, spec), *_ = arrivals(WORK, real.spec.vocab_size)
    record = Record(WORK[0], 0, at, at)
    replica.add(spec, record)
    while replica.busy:
        ended = replica.step()
    assert ended == [record] and record.finished == replica.now and record.output_tokens == WORK[0].output
