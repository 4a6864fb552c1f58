"""In place of a device: takes as long as the cost model says, and computes nothing."""

from __future__ import annotations

from turnout.core.scheduling.queues import Queues
from turnout.core.types.plan import Logits, Plan
from turnout.lab.simulation.cost import Kind, Seconds, Work, kind, work_of
from turnout.lab.simulation.virtual_clock import VirtualClock

__all__ = ["Aside", "CostRunner"]


class Aside:
    """Sequences that compute their next token in every step without being in its plan."""

    def __init__(self) -> None:
        self.sequences = 0
        self.context = 0
        """Positions that the next step reads for them."""
        self.kinds: dict[Kind, int] = {}
        """Of their chunks, with how many are of each."""

    def add(self, start: int) -> None:
        """One whose next token is computed at position `start`."""
        self.sequences += 1
        self.context += start + 1
        self._count(kind(1, start + 1), 1)

    def remove(self, start: int, kind: Kind) -> None:
        """`kind`: as it was last counted."""
        self.sequences -= 1
        self.context -= start + 1
        self._count(kind, -1)

    def change(self, old: Kind, new: Kind) -> None:
        if old != new:
            self._count(old, -1)
            self._count(new, 1)

    def step(self) -> None:
        """All of them are one token further."""
        self.context += self.sequences

    def _count(self, kind: Kind, more: int) -> None:
        count = self.kinds.get(kind, 0) + more
        if count:
            self.kinds[kind] = count
        else:
            del self.kinds[kind]


class CostRunner:
    """Implements Runner, on a virtual clock."""

    def __init__(self, clock: VirtualClock, seconds: Seconds) -> None:
        self.aside = Aside()
        self.queues: Queues | None = None
        """Whose lengths planning takes time for; set when there are some."""
        self.steps = 0
        self.work = Work()
        """Of the last step."""
        self._clock = clock
        self._seconds = seconds

    def run(self, plan: Plan) -> Logits:
        aside, queues = self.aside, self.queues
        work = work_of(plan, aside.kinds)
        work.tokens += aside.sequences
        work.sequences += aside.sequences
        work.rows += aside.sequences
        work.context += aside.context
        work.pairs += aside.context
        if queues is not None:
            work.running, work.waiting = queues.running_count, queues.waiting_count
        self._clock.now += self._seconds.of(work)
        self.steps += 1
        self.work = work
        rows = {chunk.sequence: range(chunk.rows) for chunk in plan.chunks if chunk.rows}
        return Logits([], rows)  # type: ignore[arg-type]  # no strategy here looks at a value
