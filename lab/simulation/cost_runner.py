"""A runner that computes nothing: a step takes as long as the cost model says."""

from __future__ import annotations

from turnout.core.scheduling.queues import Queues
from turnout.core.types.plan import Plan
from turnout.lab.simulation.cost import Kind, Seconds, Work, kind, work_of
from turnout.lab.simulation.virtual_engine import VirtualRunner

__all__ = ["CostRunner", "FastForwarded"]


class FastForwarded:
    """The fast-forwarded sequences: each computes its next token in every step, and is in no plan."""

    def __init__(self) -> None:
        self.sequences = 0
        self.context = 0
        """Positions that attention reads for them in the next step."""
        self.kinds: dict[Kind, int] = {}
        """How many of their chunks are of each kind."""

    def add(self, start: int) -> None:
        """Adds a sequence whose next token is computed at position `start`."""
        self.sequences += 1
        self.context += start + 1
        self._count(kind(1, start + 1), 1)

    def remove(self, start: int, kind: Kind) -> None:
        """Removes a sequence. `kind`: the kind that its chunk was last counted as."""
        self.sequences -= 1
        self.context -= start + 1
        self._count(kind, -1)

    def change(self, old: Kind, new: Kind) -> None:
        if old != new:
            self._count(old, -1)
            self._count(new, 1)

    def step(self) -> None:
        """Moves all of them one token further."""
        self.context += self.sequences

    def _count(self, kind: Kind, more: int) -> None:
        count = self.kinds.get(kind, 0) + more
        if count:
            self.kinds[kind] = count
        else:
            del self.kinds[kind]


class CostRunner(VirtualRunner):
    """A step takes what the cost model says of it and of the sequences that are fast-forwarded."""

    def __init__(self, cost: Seconds) -> None:
        super().__init__()
        self.fast_forwarded = FastForwarded()
        self.queues: Queues | None = None
        """The queues whose lengths planning takes time for, once there are some."""
        self.work = Work()
        """The work of the last step."""
        self._cost = cost

    def seconds(self, plan: Plan) -> float:
        others, queues = self.fast_forwarded, self.queues
        work = work_of(plan, others.kinds)
        work.tokens += others.sequences
        work.sequences += others.sequences
        work.rows += others.sequences
        work.context += others.context
        work.pairs += others.context
        if queues is not None:
            work.running, work.waiting = queues.running_count, queues.waiting_count
        self.work = work
        return self._cost.of(work)
