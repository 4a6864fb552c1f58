"""The engine of a simulation, in real time: what a live fleet is compared with a simulated one by.

Its steps compute nothing and take as long as the cost model says. A step that begins late, because the
machine was busy, makes up for it: so what is measured is the fleet, not the machine.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from turnout.config import EngineConfig
from turnout.core.clock import monotonic
from turnout.core.engine.engine import Engine
from turnout.core.interfaces.kv import PrefixAnnouncer
from turnout.core.registry.registry import Registry
from turnout.core.types.messages import Ready
from turnout.core.types.plan import Logits, Plan
from turnout.lab.simulation.assembly import build_simulated
from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.cost_runner import CostRunner

__all__ = ["COST_MODEL", "build"]

COST_MODEL = "SIMULATED_ENGINE_COST_MODEL"
"""The environment's variable that names the file of the cost model."""


class RealTimeRunner(CostRunner):
    """A runner whose clock goes on from the end of the step before while a request of that step is there."""

    _last: frozenset[int] = frozenset()
    """The sequences of the step before."""

    def run(self, plan: Plan) -> Logits:
        sequences = frozenset(chunk.sequence.id for chunk in plan.chunks)
        if not sequences & self._last:  # there was nothing to do
            self.clock.now = max(self.clock.now, monotonic())
        self._last = sequences
        logits = super().run(plan)
        time.sleep(max(0.0, self.clock.now - monotonic()))
        return logits


@dataclass
class SimulatedInRealTime:
    """As `AssembledEngine`, without a model."""

    engine: Engine
    ready: Ready
    registry: Registry
    scheduler: str

    def set_scheduler(self, spec: str) -> str:
        raise NotImplementedError


def build(config: EngineConfig) -> SimulatedInRealTime:
    """What ``--factory engines.simulated:build`` names."""
    registry = Registry.of(config)
    cost = CostModel.load(Path(os.environ[COST_MODEL]))
    simulated = build_simulated(config, cost, registry, RealTimeRunner)
    engine, cache = simulated.engine, simulated.scheduler.kv
    engine.clock = monotonic
    ready = Ready(
        model=config.model,
        max_model_len=engine.limits.max_model_len,
        vocab_size=cost.model.vocab_size,
        defaults={},
        kv=config.kv,
        kv_bytes_per_token=1,
        announces=isinstance(cache, PrefixAnnouncer) and cache.announces,
        resumes=True,
        summary=[],
    )
    return SimulatedInRealTime(engine, ready, registry, config.scheduler)
