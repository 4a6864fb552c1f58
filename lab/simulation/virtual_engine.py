"""An engine on a virtual clock: everything is as it is served, but a step computes nothing.

`turnout.lab.simulation` builds one from a server's configuration and a cost model, and
`turnout.lab.simulation.scripted` one of parts that its caller chooses. They differ in how long a step takes
and in what decides over tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.engine.observers import Observers
from turnout.core.interfaces.admission import AdmissionPolicy
from turnout.core.interfaces.decoding import Decoding
from turnout.core.scheduling.scheduler import Scheduler
from turnout.core.types.plan import Logits, Plan

__all__ = ["VirtualClock", "VirtualRunner", "virtual_engine"]


class VirtualClock:
    """A clock that passes only when its owner moves it on. Implements `Clock`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class VirtualRunner(ABC):
    """A runner that computes nothing, and moves its clock on by what a step would have taken."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.steps = 0

    @abstractmethod
    def seconds(self, plan: Plan) -> float:
        """The duration of a step; called once for each."""

    def run(self, plan: Plan) -> Logits:
        self.clock.now += self.seconds(plan)
        self.steps += 1
        rows = {chunk.sequence: range(chunk.rows) for chunk in plan.chunks if chunk.rows}
        return Logits([], rows)  # type: ignore[arg-type]  # no decoding on a virtual clock looks at a value


def virtual_engine(
    scheduler: Scheduler,
    runner: VirtualRunner,
    decoding: Sequence[Decoding],
    limits: Limits,
    observers: Observers | None = None,
    admission: AdmissionPolicy | None = None,
) -> Engine:
    """An engine on the runner's clock."""
    return Engine(scheduler, runner, decoding, limits, runner.clock, observers, admission=admission)
