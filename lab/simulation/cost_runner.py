"""A runner that computes nothing: a step takes as long as the cost model says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from turnout.core.scheduling.queues import Queues
from turnout.core.types.plan import Plan
from turnout.lab.simulation.cost import Kind, Seconds, Work, kind, work_of
from turnout.lab.simulation.reach import EVERYTHING, Reach
from turnout.lab.simulation.virtual_engine import VirtualRunner

__all__ = ["CostRunner", "FastForwarded"]


class FastForwarded:
    """The fast-forwarded sequences: each computes its next token in every step, and is in no plan."""

    def __init__(self, reaches: Sequence[Reach] = EVERYTHING) -> None:
        self.sequences = 0
        self._seen = [_Seen(reach) for reach in reaches]
        self.kinds: dict[Kind, int] = {}
        """How many of their chunks are of each kind."""

    def add(self, start: int) -> None:
        """Adds a sequence whose next token is computed at position `start`."""
        self.sequences += 1
        for seen in self._seen:
            seen.add(start + 1)
        self._count(kind(1, start + 1), 1)

    def remove(self, start: int, kind: Kind) -> None:
        """Removes a sequence. `kind`: the kind that its chunk was last counted as."""
        self.sequences -= 1
        for seen in self._seen:
            seen.remove(start + 1)
        self._count(kind, -1)

    def change(self, old: Kind, new: Kind) -> None:
        if old != new:
            self._count(old, -1)
            self._count(new, 1)

    def step(self) -> None:
        """Moves all of them one token further."""
        for seen in self._seen:
            seen.step()

    @property
    def runs(self) -> bool:
        """Whether each step adds as much to `context` as the one before, so that steps can be taken back."""
        return len(self._seen) == 1 and self._seen[0].reach.window is None

    def move(self, steps: int) -> tuple[float, int, int]:
        """Moves all of them, where each step is alike; returns the share of layers that positions count with,
        their number before, and how many a step adds."""
        (seen,) = self._seen
        before = seen.context
        return seen.reach.share, before, seen.move(steps)

    @property
    def context(self) -> float:
        """Positions that attention reads for them in the next step, in the mean over layers."""
        if len(self._seen) == 1:
            return self._seen[0].reach.share * self._seen[0].context
        return sum(seen.reach.share * seen.context for seen in self._seen)

    def _count(self, kind: Kind, more: int) -> None:
        count = self.kinds.get(kind, 0) + more
        if count:
            self.kinds[kind] = count
        else:
            del self.kinds[kind]


class _Seen:
    """The positions that the next tokens of sequences see in layers of one reach."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.context = 0
        self._window = reach.window
        self._steps = 0
        self._growing = 0
        """How many see all of their positions, one more in each step."""
        self._full: Counter[int] = Counter()
        """By the step from which on they see no more: how many of those."""

    def add(self, context: int) -> None:
        self._count(context, 1)

    def remove(self, context: int) -> None:
        self._count(context, -1)

    def step(self) -> None:
        self._steps += 1
        self.context += self._growing
        if self._full:
            self._growing -= self._full.pop(self._steps, 0)

    def move(self, steps: int) -> int:
        self._steps += steps
        self.context += steps * self._growing
        return self._growing

    def _count(self, context: int, one: int) -> None:
        if self._window is None:
            self.context += one * context
            self._growing += one
            return
        self.context += one * min(context, self._window)
        if context < self._window:
            self._growing += one
            self._full[self._steps + self._window - context] += one


class CostRunner(VirtualRunner):
    """A step takes what the cost model says of it and of the sequences that are fast-forwarded."""

    def __init__(self, cost: Seconds, reaches: Sequence[Reach] = EVERYTHING) -> None:
        """reaches: of the model's layers."""
        super().__init__()
        self.fast_forwarded = FastForwarded(reaches)
        self.queues: Queues | None = None
        """The queues whose lengths planning takes time for, once there are some."""
        self.work = Work()
        """The work of the last step."""
        self._cost, self._reaches = cost, reaches
        self._parts: dict[tuple[int, int], float] = {}
        """By sequences and groups: the part of a step's seconds that depends on nothing else."""

    def pass_step(self) -> None:
        """Takes a step in which only fast-forwarded sequences compute a token, and none waits.

        As `run` does, to the last bit: so the terms are added in the order of `Seconds.of`.
        """
        others, cost = self.fast_forwarded, self._cost
        count, context, part = others.sequences, others.context, self._part()
        reading = cost.reading(context)
        self.clock.now += part + reading + cost.pair * context + cost.host + cost.runner * count
        self.steps += 1

    def pass_steps(self, steps: int) -> list[float]:
        """As many steps as `pass_step` and `FastForwarded.step` would take; returns when each ended."""
        share, positions, more = self.fast_forwarded.move(steps)
        part, cost, count = self._part(), self._cost, self.fast_forwarded.sequences
        read, pair, host, runner = cost.read, cost.pair, cost.host, cost.runner * count
        reading = cost.reading if cost.far else None  # a call in each of millions of steps takes longer
        now, ends = self.clock.now, []
        for _ in range(steps):
            context = share * positions
            read_all = reading(context) if reading else read * context
            now += part + read_all + pair * context + host + runner
            ends.append(now)
            positions += more
        self.clock.now = now
        self.steps += steps
        return ends

    def take_back(self, steps: int, now: float) -> None:
        """Takes back the last of `pass_steps`. now: when the first of them began."""
        self.fast_forwarded.move(-steps)
        self.clock.now = now
        self.steps -= steps

    def _part(self) -> float:
        others = self.fast_forwarded
        count = others.sequences
        key = count, len(others.kinds)
        part = self._parts.get(key)
        if part is None:
            work = Work(tokens=count, sequences=count, rows=count, groups=key[1])
            part = self._parts[key] = self._cost.of_batch(work)
        return part

    def seconds(self, plan: Plan) -> float:
        others, queues = self.fast_forwarded, self.queues
        work = work_of(plan, others.kinds, self._reaches)
        work.tokens += others.sequences
        work.sequences += others.sequences
        work.rows += others.sequences
        work.context += others.context
        work.pairs += others.context
        if queues is not None:
            work.running, work.waiting = queues.running_count, queues.waiting_count
        self.work = work
        return self._cost.of(work)
