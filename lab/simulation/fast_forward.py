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

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable

from turnout.core.interfaces.kv import Span
from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy
from turnout.core.scheduling.order import read_order
from turnout.core.types.plan import Plan
from turnout.core.types.request import Request, Sequence
from turnout.core.types.views import View
from turnout.lab.simulation.assembly import SimulatedEngine
from turnout.lab.simulation.cost import GRAIN, kind

__all__ = ["FastForward", "can_fast_forward"]

NOTHING = Plan([], [])
STEP_ENDS = 1 << 10
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


OnTokens = Callable[[Request, Iterable[float]], None]
"""Called with the times at which a fast-forwarded request got its tokens."""


class FastForward:
    """Takes the steps of one engine in which only fast-forwarded requests get a token."""

    def __init__(self, simulated: SimulatedEngine, on_tokens: OnTokens, *, watched: bool = False) -> None:
        """watched: what was in each step is read, `CostRunner.work`."""
        scheduler = simulated.scheduler
        self._queues, self._kv, self._budget = scheduler.queues, scheduler.kv, scheduler.capacity.tokens
        self._grows_at = simulated.backend.grows_at or 0
        self._clock, self._runner, self._script = simulated.clock, simulated.runner, simulated.script
        self._on_tokens, self._watched = on_tokens, watched
        scheduler.policy = _PolicyWithCallback(scheduler.policy, self._grow)
        self._passed: dict[Request, _Passed] = {}
        """The fast-forwarded requests."""
        self._calendar: dict[int, list[_Passed]] = {}
        """For each step, the requests to look at before it."""
        self._growing: list[_Passed] = []
        """The requests that reserve memory in this step."""
        self._settled = False
        """All requests are fast-forwarded, and there is a token for each in a step."""
        self._step = 0
        self._ends = array("d")
        """When steps ended, from step number `_first` on."""
        self._first = 0
        self._most_ends = STEP_ENDS
        """How many there are when old ones are dropped next."""
        self._ahead: list[float] = []
        """When those steps began that were taken ahead of the world's clock and may be taken back."""
        self._runs = self._runner.fast_forwarded.runs and not watched
        self.changed = True
        """The last step changed more than the clock and the lengths of sequences."""

    def unsettle(self) -> None:
        """Notes that a request has arrived."""
        self._settled = False

    def take(self) -> bool:
        """Takes the next step, if only fast-forwarded requests get a token in it.

        If not, returns False, and the step is the engine's; `after` is to be called when that has taken it.
        """
        if self._ahead:
            self._ahead = []
        due = self._calendar.pop(self._step, None)
        self.changed = due is not None or not self._settled
        if self.changed:
            self._look_at(due or [])
            if self._queues.running_count > len(self._passed) or self._queues.waiting_count:
                return False
            if self._growing:
                self._grow()
        self._pass()
        return True

    def run_ahead(self) -> None:
        """Takes the steps before the next one that requests are looked at for; they hold if none arrives."""
        if not (self._runs and self._settled and self._passed):
            return
        steps = min(self._calendar) - self._step
        if steps > 0:
            began = self._clock.now
            ends = self._runner.pass_steps(steps)
            self._ahead = [began, *ends[:-1]]
            self._step += steps
            self._ends.extend(ends)
            if len(self._ends) > self._most_ends:
                self._drop_step_ends()

    def take_back(self, now: float) -> bool:
        """Takes back steps that were taken ahead and begin at `now` or later; returns whether it did."""
        steps = len(self._ahead) - bisect_left(self._ahead, now)
        if steps:
            self._runner.take_back(steps, self._ahead[-steps])
            self._step -= steps
            del self._ends[-steps:], self._ahead[-steps:]
        return steps > 0

    def after(self, ran: bool) -> None:
        """Fast-forwards the requests that only decode, after a step of the engine.

        ran: the runner ran; if not, the plan was empty, and only fast-forwarded requests got a token.
        """
        if self._passed:
            if not ran:
                self._runner.run(NOTHING)
            self._runner.fast_forwarded.step()
        self._end_step()
        decoding = [request for request in self._queues.running if _only_decodes(request)]
        for request in decoding:
            (sequence,) = request.live
            passed = self._passed[request] = _Passed(request, sequence, self._step)
            self._runner.fast_forwarded.add(sequence.computed)
            self._plan_look(passed)
        self._queues.fast_forward(decoding)
        count = self._queues.running_count
        self._settled = count == len(self._passed) <= self._budget and not self._queues.waiting_count

    # -------------------------------------------------------------- details

    def _look_at(self, due: list[_Passed]) -> None:
        """Looks at the requests that the next step may change."""
        size, growing, ending = self._grows_at, [], []
        for passed in due:
            self._catch_up(passed)
            if passed.request.limit - len(passed.sequence.tokens) == 1:
                ending.append(passed)
            elif size and not passed.sequence.computed % size:
                growing.append(passed)
        if ending:
            self._resume(ending)
        self._growing = growing
        if self._passed and not self._undisturbed():
            self._calendar.clear()
            self._growing = []
            for passed in self._passed.values():
                self._catch_up(passed)
            self._resume(list(self._passed.values()))
            return
        for passed in due:
            if not passed.ended:
                self._plan_look(passed, grows=bool(size) and not passed.sequence.computed % size)

    def _pass(self) -> None:
        """Takes a step in which fast-forwarded requests get a token, and nothing else happens."""
        if self._watched:
            self._runner.run(NOTHING)
        else:
            self._runner.pass_step()
        self._runner.fast_forwarded.step()
        self._end_step()

    def _end_step(self) -> None:
        self._step += 1
        self._ends.append(self._clock.now)
        if len(self._ends) > self._most_ends:
            self._drop_step_ends()

    def _plan_look(self, passed: _Passed, grows: bool = False) -> None:
        """Plans to look at a request when its block ends, its kind changes, or one token is left."""
        sequence, size = passed.sequence, self._grows_at
        start = sequence.computed
        steps = min(passed.request.limit - len(sequence.tokens) - 1, passed.alike_to - start)
        if size:
            taken = start + grows
            steps = min(steps, -(-taken // size) * size - start)
        at = self._step + steps
        if at in self._calendar:
            self._calendar[at].append(passed)
        else:
            self._calendar[at] = [passed]

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
        if needed and needed > self._kv.free:
            return False
        return not begun or min(begun) > max(map(self._queues.admission, self._passed))

    def _grow(self) -> None:
        """Reserves memory for the next token of each growing request. There is enough."""
        for passed in self._growing:
            start = passed.sequence.computed
            if not self._kv.reserve([Span(passed.sequence, start, start + 1)]):
                raise RuntimeError(f"the KV cache had {self._kv.free} free positions and did not give one")
        self._growing = []

    def _catch_up(self, passed: _Passed) -> None:
        """Gives a request the tokens of the steps since it was last looked at."""
        since, step = passed.since, self._step
        if since == step:
            return
        count, request, sequence = step - since, passed.request, passed.sequence
        sequence.tokens += self._script.tokens(request.spec.seed, len(sequence.tokens), count)
        sequence.computed = computed = sequence.computed + count
        request.output_tokens += count
        self._kv.commit(sequence, computed)
        self._on_tokens(request, self._ends[since - self._first : step - self._first])
        passed.since = step
        if computed >= passed.alike_to:
            old = passed.kind
            passed.set_kind()
            self._runner.fast_forwarded.change(old, passed.kind)

    def _resume(self, ones: list[_Passed]) -> None:
        for passed in ones:
            del self._passed[passed.request]
            self._runner.fast_forwarded.remove(passed.sequence.computed, passed.kind)
            passed.ended = True
        self._queues.resume([passed.request for passed in ones])

    def _drop_step_ends(self) -> None:
        """Drops the end times of steps whose tokens all requests have got."""
        oldest = min((passed.since for passed in self._passed.values()), default=self._step)
        del self._ends[: oldest - self._first]
        self._first = oldest
        self._most_ends = STEP_ENDS + 2 * len(self._ends)


class _Passed:
    """A fast-forwarded request."""

    __slots__ = ("alike_to", "ended", "kind", "request", "sequence", "since")

    def __init__(self, request: Request, sequence: Sequence, since: int) -> None:
        self.request, self.sequence = request, sequence
        self.since = since
        """The first step whose token it has not got yet."""
        self.ended = False
        """It is fast-forwarded no more."""
        self.set_kind()

    def set_kind(self) -> None:
        """Sets what its chunk counts as in a step's cost, and the first position where that changes."""
        self.kind = kind(1, self.sequence.computed + 1)
        self.alike_to = GRAIN * ((1 << self.kind[1]) - 1)


def _only_decodes(request: Request) -> bool:
    """Whether a request needs nothing but its next token, and has more than one to go.

    Not while a prompt's last token is left to compute: the step that does begins an answer (`Work.begun`).
    """
    (sequence,) = request.live
    if not request.output_tokens:
        return False
    return sequence.held and len(sequence.tokens) - sequence.computed == 1 and sequence.room > 1


class _PolicyWithCallback(SchedulingPolicy):
    """A policy, and a function to call as soon as it has given its order."""

    def __init__(self, policy: SchedulingPolicy, then: Callable[[], None]) -> None:
        self._policy = policy
        self._then = then
        # A class attribute, set on one object.
        self.head_of_line = policy.head_of_line  # type: ignore[misc]

    def order(self, view: View) -> Iterable[Entry]:
        order = read_order(self._policy.order(view), view)
        self._then()
        return order
