"""Fast forward: a simulated engine skips what happens in every step, since most requests only decode.

A request that needs nothing but its next token is fast-forwarded (`FastForwardQueues.fast_forward`) until
its last token. Meanwhile it counts in a step's budget, its sequence slots and its cost. It is looked at only
where a block ends: there it gets the tokens of the steps in between, commits the block, and reserves the
next one. So a step costs what changes in it, and the results equal those of a simulation that takes every
step in full:

- the policy declares that such requests come first in any order (`SchedulingPolicy.runners_first`);
- the KV backend declares at which positions a growing sequence changes anything (`KVBackend.grows_at`), and
  is called for the same memory at the same time: after the policy gave its order, before another request
  gets any;
- where that may not be the whole story (memory is short, more requests run than a step has tokens, or a
  prompt was begun before others that run), all requests are resumed and the step is taken in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnout.core.interfaces.kv import Span
from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy
from turnout.core.scheduling.order import Order
from turnout.core.types.plan import Plan
from turnout.core.types.request import Request
from turnout.core.types.views import View
from turnout.lab.simulation.assembly import SimulatedEngine
from turnout.lab.simulation.cost import GRAIN, Kind, kind

__all__ = ["FastForward", "can_fast_forward"]

NOTHING = Plan([], [])
MAX_STEP_ENDS = 1 << 14
"""How many steps' end times are kept before old ones are dropped."""


def can_fast_forward(simulated: SimulatedEngine) -> bool:
    """Whether skipping steps leaves the results of this simulation as they are."""
    policy = type(simulated.engine.scheduler.policy)
    ordering = next(base for base in policy.__mro__ if "order" in vars(base))
    return (
        bool(vars(ordering).get("runners_first", False))
        and policy.victim is SchedulingPolicy.victim
        and policy.observe is SchedulingPolicy.observe
        and simulated.backend.grows_at is not None
        and not simulated.watched
        and not simulated.engine.shedding.watches
    )


OnTokens = Callable[[Request, list[float]], None]
"""Called with the times at which a fast-forwarded request got its tokens."""


class FastForward:
    """Wraps the steps of one engine: `before`, then `pass_over` or a step, then `after`."""

    def __init__(self, simulated: SimulatedEngine, on_tokens: OnTokens) -> None:
        scheduler = simulated.scheduler
        self._queues, self._kv, self._budget = scheduler.queues, scheduler.kv, scheduler.capacity.tokens
        self._grows_at = simulated.backend.grows_at or 0
        self._clock, self._runner, self._script = simulated.clock, simulated.runner, simulated.script
        self._on_tokens = on_tokens
        scheduler.policy = _PolicyWithCallback(scheduler.policy, self._grow)
        self._since: dict[Request, int] = {}
        """For each fast-forwarded request, the first step whose token it has not got yet."""
        self._kinds: dict[Request, Kind] = {}
        """For each fast-forwarded request, the kind that its chunk counts as in a step's cost."""
        self._calendar: dict[int, list[Request]] = {}
        """For each step, the requests to look at before it."""
        self._growing: list[Request] = []
        """The requests that reserve memory in this step."""
        self._step = 0
        self._ends: list[float] = []
        """When steps ended, from step number `_first` on."""
        self._first = 0

    def before(self) -> None:
        """Looks at the requests that the next step may change."""
        due = self._calendar.pop(self._step, [])
        for request in due:
            self._catch_up(request)
        self._resume([request for request in due if request.live[0].room == 1])
        due = [request for request in due if request in self._since]
        self._growing = [request for request in due if self._ends_block(request)]
        if self._since and not self._undisturbed():
            self._calendar.clear()
            self._growing = []
            for request in self._since:
                self._catch_up(request)
            self._resume(list(self._since))
        for request in due:
            if request in self._since:
                self._plan_check(request)

    def pass_over(self) -> bool:
        """Takes the next step here, if all requests are fast-forwarded; returns whether it did."""
        if self._queues.running_count > self._queues.fast_forwarded or self._queues.waiting_count:
            return False
        self._grow()
        return True

    def after(self, ran: bool) -> None:
        """Fast-forwards the requests that only decode, after a step.

        ran: the runner ran; if not, the plan was empty, and only fast-forwarded requests got a token.
        """
        if self._since:
            if not ran:
                self._runner.run(NOTHING)
            self._runner.fast_forwarded.step()
        self._step += 1
        self._ends.append(self._clock.now)
        decoding = [request for request in self._queues.running if _only_decodes(request)]
        for request in decoding:
            self._since[request] = self._step
            self._kinds[request] = kind(1, request.live[0].computed + 1)
            self._runner.fast_forwarded.add(request.live[0].computed)
            self._plan_check(request)
        self._queues.fast_forward(decoding)
        if len(self._ends) > 2 * MAX_STEP_ENDS:
            self._drop_step_ends()

    # -------------------------------------------------------------- details

    def _plan_check(self, request: Request) -> None:
        """Plans to look at a request when its block ends, its kind changes, or one token is left."""
        (sequence,) = request.live
        start, size = sequence.computed, self._grows_at
        at = min(start + sequence.room - 1, _longer(start))
        if size:
            taken = start + 1 if request in self._growing else start
            at = min(at, -(-taken // size) * size)
        self._calendar.setdefault(self._step + at - start, []).append(request)

    def _ends_block(self, request: Request) -> bool:
        return bool(self._grows_at) and not request.live[0].computed % self._grows_at

    def _undisturbed(self) -> bool:
        """Whether each fast-forwarded request gets its token in the next step and none is preempted."""
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
        """Reserves memory for the next token of each growing request. There is enough."""
        for request in self._growing:
            (sequence,) = request.live
            if not self._kv.reserve([Span(sequence, sequence.computed, sequence.computed + 1)]):
                raise RuntimeError(f"the KV cache had {self._kv.free} free positions and did not give one")
        self._growing = []

    def _catch_up(self, request: Request) -> None:
        """Gives a request the tokens of the steps since it was last looked at."""
        since, (sequence,) = self._since[request], request.live
        count = self._step - since
        sequence.tokens += self._script.next(sequence, count)
        sequence.computed += count
        request.output_tokens += count
        self._kv.commit(sequence, sequence.computed)
        self._on_tokens(request, self._ends[since - self._first : self._step - self._first])
        self._since[request] = self._step
        new = kind(1, sequence.computed + 1)
        self._runner.fast_forwarded.change(self._kinds[request], new)
        self._kinds[request] = new

    def _resume(self, requests: list[Request]) -> None:
        for request in requests:
            del self._since[request]
            self._runner.fast_forwarded.remove(request.live[0].computed, self._kinds.pop(request))
        self._queues.resume(requests)

    def _drop_step_ends(self) -> None:
        """Drops the end times of steps whose tokens all requests have got."""
        oldest = min(self._since.values(), default=self._step)
        if oldest - self._first > MAX_STEP_ENDS:
            del self._ends[: oldest - self._first]
            self._first = oldest


def _only_decodes(request: Request) -> bool:
    """Whether a request needs nothing but its next token, and has more than one to go."""
    (sequence,) = request.live
    return sequence.held and len(sequence.tokens) - sequence.computed == 1 and sequence.room > 1


def _longer(start: int) -> int:
    """The first position after `start` whose chunk is of another `kind`."""
    return GRAIN * ((1 << kind(1, start + 1)[1]) - 1)


class _PolicyWithCallback(SchedulingPolicy):
    """A policy, and a function to call as soon as it has given its order."""

    def __init__(self, policy: SchedulingPolicy, then: Callable[[], None]) -> None:
        self._policy = policy
        self._then = then
        # A class attribute, set on one object.
        self.head_of_line = policy.head_of_line  # type: ignore[misc]

    def order(self, view: View) -> Iterable[Entry]:
        order = self._policy.order(view)
        order = order if isinstance(order, Order) else list(order)
        self._then()
        return order
