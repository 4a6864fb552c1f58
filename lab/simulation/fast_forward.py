"""Passing over what happens in every step: most who run need their next token, and that is all.

Such a request is put aside (`Queues.put_aside`) until its last token. Meanwhile it counts in a step's budget,
its sequence slots and its cost, and is looked at only where a block ends: it gets the tokens it is owed,
shares the block, and takes the next one. So a step costs what changes in it, and what comes out is the same
as if every step had been taken in full:

- the policy says that such requests come first, whoever else there is (`SchedulingPolicy.runners_first`);
- the KV backend says where they ask for something (`KVBackend.grows_at`), and is asked for the same, at the
  same time: after the policy was asked for its order, before anybody else gets memory;
- where that might not be the whole story (memory short, more who run than a step has tokens, a prompt that
  was begun before others who run), everybody is called back and the step is taken in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnout.core.interfaces.kv import Span
from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy
from turnout.core.types.plan import Plan
from turnout.core.types.request import Request
from turnout.core.types.views import View
from turnout.lab.simulation.assembly import Simulated
from turnout.lab.simulation.cost import GRAIN, Kind, kind

__all__ = ["Doze", "dozes"]

NOTHING = Plan([], [])
KEPT = 1 << 14
"""Ends of steps to keep at least."""


def dozes(simulated: Simulated) -> bool:
    """Would all come out the same?"""
    policy = type(simulated.engine.scheduler.policy)
    ordering = next(base for base in policy.__mro__ if "order" in vars(base))
    return (
        bool(vars(ordering).get("runners_first", False))
        and policy.victim is SchedulingPolicy.victim
        and policy.observe is SchedulingPolicy.observe
        and simulated.backend.grows_at is not None
        and not simulated.watched
    )


Owed = Callable[[Request, list[float]], None]
"""Told when a request got tokens while it was aside."""


class Doze:
    """Stands around the steps of one engine."""

    def __init__(self, simulated: Simulated, owed: Owed) -> None:
        scheduler = simulated.engine.scheduler
        self._queues, self._kv, self._budget = scheduler.queues, scheduler.kv, scheduler.capacity.tokens
        self._grows_at = simulated.backend.grows_at or 0
        self._clock, self._runner, self._script = simulated.clock, simulated.runner, simulated.script
        self._owed = owed
        scheduler.policy = _AskedFirst(scheduler.policy, self._grow)
        self._since: dict[Request, int] = {}
        """Of those aside: the first step whose token is still owed."""
        self._kinds: dict[Request, Kind] = {}
        """Of those aside: what they count as in a step's cost."""
        self._calendar: dict[int, list[Request]] = {}
        """Whom to look at before which step."""
        self._growing: list[Request] = []
        """Who takes memory in this step."""
        self._step = 0
        self._ends: list[float] = []
        """Of steps, from number `_first` on."""
        self._first = 0

    def before(self) -> None:
        """Look at whom the next step may change."""
        due = self._calendar.pop(self._step, [])
        for request in due:
            self._settle(request)
        self._call_back([request for request in due if request.live[0].room == 1])
        due = [request for request in due if request in self._since]
        self._growing = [request for request in due if self._ends_block(request)]
        if self._since and not self._calm():
            self._calendar.clear()
            self._growing = []
            for request in self._since:
                self._settle(request)
            self._call_back(list(self._since))
        for request in due:
            if request in self._since:
                self._look_again(request)

    def pass_over(self) -> bool:
        """Nobody but those aside has anything to do in the next step: then they have done it."""
        if self._queues.running_count > self._queues.aside or self._queues.waiting_count:
            return False
        self._grow()
        return True

    def after(self, ran: bool) -> None:
        """A step was taken, though perhaps not `ran`: its plan was empty. Put aside who may be."""
        if self._since:
            if not ran:
                self._runner.run(NOTHING)
            self._runner.aside.step()
        self._step += 1
        self._ends.append(self._clock.now)
        quiet = [request for request in self._queues.running if _quiet(request)]
        for request in quiet:
            self._since[request] = self._step
            self._kinds[request] = kind(1, request.live[0].computed + 1)
            self._runner.aside.add(request.live[0].computed)
            self._look_again(request)
        self._queues.put_aside(quiet)
        if len(self._ends) > 2 * KEPT:
            self._forget()

    # -------------------------------------------------------------- details

    def _look_again(self, request: Request) -> None:
        """When its next block ends, its context counts as longer, or it has one token to go."""
        (sequence,) = request.live
        start, size = sequence.computed, self._grows_at
        at = min(start + sequence.room - 1, _longer(start))
        if size:
            taken = start + 1 if request in self._growing else start
            at = min(at, -(-taken // size) * size)
        self._calendar.setdefault(self._step + at - start, []).append(request)

    def _ends_block(self, request: Request) -> bool:
        return bool(self._grows_at) and not request.live[0].computed % self._grows_at

    def _calm(self) -> bool:
        """Whatever the next step brings, those aside get their token and nobody gives way."""
        if self._queues.running_count > self._budget:
            return False
        size, begun = self._grows_at, []
        needed = len(self._growing) * size
        for request in self._queues.running:
            (sequence,) = request.live
            pending = len(sequence.tokens) - sequence.computed
            if pending != 1:
                begun.append(self._queues.admission(request))
                needed += pending + size
            elif size and not sequence.computed % size:
                needed += size
        if needed > self._kv.free:
            return False
        return not begun or min(begun) > max(map(self._queues.admission, self._since))

    def _grow(self) -> None:
        """Memory for the next token of those who need some: there is enough."""
        for request in self._growing:
            (sequence,) = request.live
            if not self._kv.reserve([Span(sequence, sequence.computed, sequence.computed + 1)]):
                raise RuntimeError(f"the KV cache had {self._kv.free} free positions and did not give one")
        self._growing = []

    def _settle(self, request: Request) -> None:
        """Give it the tokens it is owed."""
        since, (sequence,) = self._since[request], request.live
        count = self._step - since
        sequence.tokens += self._script.next(sequence, count)
        sequence.computed += count
        request.output_tokens += count
        self._kv.commit(sequence, sequence.computed)
        self._owed(request, self._ends[since - self._first : self._step - self._first])
        self._since[request] = self._step
        new = kind(1, sequence.computed + 1)
        self._runner.aside.change(self._kinds[request], new)
        self._kinds[request] = new

    def _call_back(self, requests: list[Request]) -> None:
        for request in requests:
            del self._since[request]
            self._runner.aside.remove(request.live[0].computed, self._kinds.pop(request))
        self._queues.call_back(requests)

    def _forget(self) -> None:
        """The ends of steps that everybody has been told of."""
        oldest = min(self._since.values(), default=self._step)
        if oldest - self._first > KEPT:
            del self._ends[: oldest - self._first]
            self._first = oldest


def _quiet(request: Request) -> bool:
    """It will get tokens, and not only its last one."""
    (sequence,) = request.live
    return sequence.held and len(sequence.tokens) - sequence.computed == 1 and sequence.room > 1


def _longer(start: int) -> int:
    """The first position after `start` whose chunk is of another `kind`."""
    return GRAIN * ((1 << kind(1, start + 1)[1]) - 1)


class _AskedFirst(SchedulingPolicy):
    """A policy, and what is to be done as soon as it has answered."""

    def __init__(self, policy: SchedulingPolicy, then: Callable[[], None]) -> None:
        self._policy = policy
        self._then = then
        # What a class says of itself, said of one object.
        self.head_of_line = policy.head_of_line  # type: ignore[misc]

    def order(self, view: View) -> Iterable[Entry]:
        order = list(self._policy.order(view))
        self._then()
        return order
