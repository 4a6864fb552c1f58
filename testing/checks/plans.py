"""The plans that a scheduling policy leads to."""

from __future__ import annotations

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.plan import Logits, Plan
from turnout.testing.toy.engine import drive, toy_engine, toy_request
from turnout.testing.toy.runner import toy_kv
from turnout.testing.toy.workloads import Arrivals, RandomCase

__all__ = ["Chunks", "plans_of"]

Chunks = list[tuple[str, int, int, int]]
"""Request, choice, start and end of each chunk, in the order of all plans of a workload."""

CROWD = 0
"""The seed that stands for many clients at once; others draw a small workload."""


def plans_of(policy: SchedulingPolicy, seed: int) -> Chunks:
    """Serves a workload with a policy that has served none yet."""
    engine, arrivals = _crowd(policy) if seed == CROWD else _drawn(policy, seed)
    seen, run = Chunks(), engine.runner.run

    def noting(plan: Plan) -> Logits:
        seen.extend((c.sequence.request.id, c.sequence.index, c.start, c.end) for c in plan.chunks)
        return run(plan)

    engine.runner.run = noting  # type: ignore[method-assign]
    drive(engine, arrivals)
    return seen


def _drawn(policy: SchedulingPolicy, seed: int) -> tuple[Engine, Arrivals]:
    trial = RandomCase.draw(seed)
    return trial.engine(policy), trial.arrivals


def _crowd(policy: SchedulingPolicy) -> tuple[Engine, Arrivals]:
    """24 requests that differ in nothing but their names and clients."""
    plain = [toy_request(f"crowd{number}", [1, 2, 3], "greedy", 4) for number in range(24)]
    arrivals = [
        (0, msgspec.structs.replace(spec, client=f"client{number}")) for number, spec in enumerate(plain)
    ]
    return toy_engine(policy, toy_kv(64, 4), budget=16, slots=4), arrivals
