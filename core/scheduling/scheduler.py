"""The scheduler: turns a policy's order into a plan, within the token budget and the KV memory.

There is no prefill phase and no decode phase: a sequence has tokens, and some of them are computed. A step
schedules as many of the others as the budget and the memory allow, in the policy's order of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from turnout.core.errors import PolicyError
from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.interfaces.scheduling import Drop, LengthPredictor, SchedulingPolicy
from turnout.core.scheduling.flights import Flights
from turnout.core.scheduling.length_prediction import GuardedPredictor
from turnout.core.scheduling.livelock import MAX_EVICTIONS_PER_REQUEST, LivelockDetector
from turnout.core.scheduling.policy_guard import Answer, PolicyGuard, Turn, arrival_order
from turnout.core.scheduling.preemption import Preemption, Recompute
from turnout.core.scheduling.queues import Queues
from turnout.core.scheduling.step_view import StepView
from turnout.core.scheduling.token_budget import (
    Capacity,
    chunk_of,
    scored_cost,
    spans_within,
    token_cost,
    without_draft,
)
from turnout.core.types.plan import Chunk, Plan
from turnout.core.types.request import Request, RequestView, Sequence, request_of
from turnout.core.types.views import KVView, View

__all__ = ["Capacity", "Scheduler"]

NEVER = 1 << 62
"""Positions that no sequence has."""


class Scheduler:
    """Owns the queues, and asks the policy for an order in each step."""

    def __init__(
        self,
        policy: SchedulingPolicy,
        kv: KVCache,
        capacity: Capacity,
        predictor: LengthPredictor,
        *,
        preemption: Preemption | None = None,
        strict: bool = False,
        queues: Queues | None = None,
        grows_at: int | None = None,
    ) -> None:
        """grows_at: as the KV backend declares it (`KVBackend.grows_at`)."""
        self.kv = kv
        self.growth_unit = {None: 1, 0: NEVER}.get(grows_at, grows_at or 1)
        """A sequence that grows by a token a step, and shares no memory with a sibling, is reserved and
        committed at multiples of this many positions only: elsewhere that would change nothing."""
        self.capacity = capacity
        self.queues = Queues() if queues is None else queues
        self.predictions = GuardedPredictor(predictor)
        self.begun = 0  # requests that have been admitted for the first time
        self.hear_begun: Callable[[Request], None] | None = None
        """Called before memory is reserved for a request for the first time."""
        self.preemptions = 0
        self.preempted: list[Request] = []
        """Those that the latest plan preempted, in order."""
        self.caught_up: set[Sequence] = set()
        """Those of the latest plan that compute more than their next token, or got their first memory."""
        self.swapped: set[Request] = set()
        """Those of `preempted` that were swapped out."""
        self.swap_outs = 0
        """How many of the preemptions swapped out what was computed."""
        self.flights = Flights()
        """The steps that have begun; more than one at a time only in a pipeline."""
        self._full = False
        """A request could not be admitted, and none has ended since."""
        self._preemption = preemption or Recompute()
        self._strict = strict
        """A fault of the policy raises; otherwise the step falls back to arrival order."""
        self._overruled = False
        """The policy caused a livelock: it is not asked until a request has ended."""
        self._livelock = LivelockDetector()
        self._bounded_in_vain = False
        """The last step pooled few tokens for the sake of requests that generate, and scheduled none."""
        self._steps = 0
        self._earlier_faults = self._earlier_slow_orders = 0
        self._guard = PolicyGuard(policy, self.queues, strict=strict)

    @property
    def policy(self) -> SchedulingPolicy:
        return self._guard.policy

    @policy.setter
    def policy(self, policy: SchedulingPolicy) -> None:
        """Replaces the policy from the next step on; running and waiting requests stay."""
        self._earlier_faults += self._guard.faults
        self._earlier_slow_orders += self._guard.slow_orders
        guard = PolicyGuard(policy, self.queues, strict=self._strict)
        guard.hear_order, self._guard = self._guard.hear_order, guard
        self._overruled, self._livelock = False, LivelockDetector()

    @property
    def token_budget(self) -> int:
        """Tokens that `plan` may schedule in the next step."""
        return self.capacity.tokens

    @property
    def policy_faults(self) -> int:
        return self._earlier_faults + self._guard.faults

    @property
    def slow_orders(self) -> int:
        return self._earlier_slow_orders + self._guard.slow_orders

    def check(self, request: Request) -> None:
        """Raises RequestError if the policy rejects a request, which arrives."""
        self._guard.check(request)

    def observe(self, request: Request, tokens: int, now: float) -> None:
        self._guard.observe(request, tokens, now)

    def watch_orders(self, hear: Callable[[Answer, float], None] | None) -> None:
        """Has `hear` called with each order of the policy, and the seconds that it took; None: no longer."""
        self._guard.hear_order = hear

    def why(self, request: Request) -> str:
        """What the policy says of a request; empty: nothing."""
        return self._guard.why(request)

    def remove(self, request: Request) -> None:
        """Forgets a request that ended, whatever its status, and frees its memory."""
        self._free(request)
        self.queues.remove(request)
        self._livelock.forget(request)
        self._overruled = self._full = False

    # -------------------------------------------------------------- a step

    def plan(self, now: float) -> tuple[Plan, list[Drop]]:
        """Returns what to compute in the next step, and the requests that the policy dropped.

        The plan is empty if nothing can run. Dropped requests are removed already. Raises PolicyError if the
        scheduler is strict and the policy is at fault.
        """
        self.preempted.clear()
        self.swapped.clear()
        self.caught_up.clear()
        if self.queues.only_finishing or self.flights.draining:
            return Plan([], self.kv.drain()), []
        view = self._view(now)
        self._overrule_on_livelock()
        step = self._serve(view, overruled=self._overruled)
        if not step.useful and self.queues.must_schedule and not self.flights:
            self._guard.fault("order", PolicyError(_unserved(view)))
            step = self._serve(view, overruled=True)
        self._livelock.note_step(step.chunks)
        return Plan(list(chain.from_iterable(step.chunks.values())), self.kv.drain()), step.dropped

    def _overrule_on_livelock(self) -> None:
        """Overrules the policy until a request has ended, if it caused a livelock.

        Arrival order is safe: the newest admission gives way, so the oldest request always makes progress.
        """
        livelock = self._livelock
        if livelock.evictions > MAX_EVICTIONS_PER_REQUEST * (
            self.queues.running_count + self.queues.waiting_count
        ):
            self._livelock, self._overruled = LivelockDetector(), True
            self._guard.fault(
                "order", PolicyError(f"had {livelock.evictions} requests evicted without progress")
            )

    def _view(self, now: float) -> View:
        self._steps += 1
        view = View(
            now=now,
            running=self.queues.running_views,
            waiting=(),
            kv=KVView(self.kv.free, self.kv.capacity),
            fits=self._fits,
            cached=self._cached,
            predict=self.predictions.predict,
        )
        queues = self.queues
        return StepView.of(view, self._steps, queues.changes.take(), lambda: queues.waiting_views)

    def _serve(self, view: View, *, overruled: bool) -> _Step:
        bounded = self.queues.generating > 0 and not self._bounded_in_vain
        pooled = self.capacity.most_pooled(self.token_budget) if bounded else self.token_budget
        step = _Step(view.now, self.token_budget, pooled, self.free_slots, len(view.running), overruled)
        order = arrival_order(view) if overruled else self._guard.order(view, lambda: step.closed)
        if self.flights.stages > 1:
            order = self._of_flight(order, step)
        for turn in order:
            if step.budget <= 0 or (step.closed and step.runners_left <= 0):
                break  # nothing is left for the requests that follow
            if isinstance(turn, Drop):
                self._drop(turn, step)
                continue
            request, limit = turn
            if request.pooling is not None:
                if step.pooled <= 0:
                    self._pass_over(request, step)
                    continue
                limit = min(limit, step.pooled)
            if request.status == "running":
                self._continue(request, limit, step)
            elif not self._admit(request, limit, step):
                step.closed = step.closed or self.policy.head_of_line
                self._full = True
        self._bounded_in_vain = bounded and all(request.pooling is not None for request in step.chunks)
        return step

    def _of_flight(self, order: Iterator[Turn | Drop], step: _Step) -> Iterator[Turn | Drop]:
        """Passes on what a pipeline's next step may compute of an order: a share of what there is to do."""
        queues = self.queues
        requests = queues.running_count + (0 if self._full else queues.waiting_count)
        step.runners_left -= sum(request.status == "running" for request in self.flights.awaited)
        most = max(1, self.flights.share(min(requests, self.capacity.sequences)))
        return self.flights.bounded(order, step.chunks, most)

    def _pass_over(self, request: Request, step: _Step) -> None:
        """Leaves a request that generates nothing as it is; those that generate may be admitted after it."""
        if request.status == "running":
            step.runners_left -= 1
        elif not self.queues.generating_waiting:
            step.closed = True  # however many of its kind follow

    def _drop(self, drop: Drop, step: _Step) -> None:
        request = request_of(drop.request)
        if request.status == "running":
            step.slots += request.width
            step.runners_left -= 1
        step.dropped.append(drop)
        self.remove(request)

    def _continue(self, request: Request, limit: int, step: _Step) -> None:
        """Schedules what a running request can use of the step."""
        step.runners_left -= 1
        if limit > 0 and self._schedule_next_token(request, step):
            return
        spans = self._reserve(request, self._spans(request, limit, step), step)
        if spans:
            self._schedule(request, spans, step)

    def _schedule_next_token(self, request: Request, step: _Step) -> bool:
        """The fast path: one token for a request of one sequence, as nearly all running requests need."""
        live = request.live
        if len(live) > 1:
            return False
        sequence = live[0]
        tokens, start = sequence.tokens, sequence.computed
        if not sequence.held or sequence.draft or len(tokens) - start != 1 or request.pooling is not None:
            return False
        grows = start % self.growth_unit == 0 or request.forks
        if grows and not self.kv.reserve([Span(sequence, start, start + 1)]):
            return False
        step.chunks[request] = [Chunk(sequence, start, tokens[-1:], 1)]
        step.budget -= 1
        return True

    def _admit(self, request: Request, limit: int, step: _Step) -> bool:
        """Admits a waiting request if it can use anything of the step; returns whether it did."""
        if request in step.preempted:
            step.runners_left -= 1
            return False
        if step.closed or not self._make_slots(request, step):
            return False
        if self.hear_begun is not None and not request.begun:
            request.begun = True
            self.hear_begun(request)
        spans = self._reserve(request, self._spans(request, limit, step), step)
        if not spans:
            return False
        self._schedule(request, spans, step)
        self.queues.admit(request)
        step.slots -= request.width
        if request.timing.scheduled is None:
            request.timing.scheduled = step.now
            self.begun += 1
            if request.spec.resume is None:
                request.cached_tokens = spans[0].start
                return True
        request.timing.resumed.append(step.now)
        return True

    def _spans(self, request: Request, limit: int, step: _Step) -> list[Span]:
        whole = request.pooling is not None and request.pooling.whole and limit > 0
        budget = step.budget if whole else min(limit, step.budget)
        if request.prompt_scores_due and budget > 0:
            budget = max(1, budget // self._cost(request, step))
        return spans_within(request, budget, self.kv)

    def _cost(self, request: Request, step: _Step) -> int:
        """Returns what a token of a request whose prompt is to be scored takes of the budget."""
        if step.scored_cost is None:
            step.scored_cost = scored_cost(self.queues.running)
        return token_cost(request, step.scored_cost)

    def _schedule(self, request: Request, spans: list[Span], step: _Step) -> None:
        cost = self._cost(request, step) if request.prompt_scores_due else 1
        if request.pooling is not None:
            step.pooled -= sum(span.tokens for span in spans)
        for sequence, start, upto in spans:
            sequence.computed, sequence.held = start, True
            self.caught_up.add(sequence)
            step.budget -= cost * (upto - start)
        step.chunks[request] = [chunk_of(span) for span in spans]

    @property
    def free_slots(self) -> int:
        """How many more sequences may run."""
        return self.capacity.sequences - self.queues.running_width

    def _fits(self, view: RequestView) -> bool:
        request = request_of(view)
        if request.status != "running" and request.width > self.free_slots:
            return False
        spans = spans_within(request, self.capacity.tokens, self.kv)
        return bool(spans) and self.kv.fits([without_draft(span) for span in spans])

    def _cached(self, view: RequestView) -> int:
        sequence = request_of(view).live[0]
        return sequence.computed if sequence.held else self.kv.cached(sequence)

    # -------------------------------------------------------------- making room

    def _make_slots(self, request: Request, step: _Step) -> bool:
        """Frees sequence slots for a waiting request, preempting the requests that the policy names."""
        while request.width > step.slots:
            if not self._preempt_for(request, step):
                return False
        return True

    def _reserve(self, request: Request, spans: list[Span], step: _Step) -> list[Span]:
        """Reserves memory for `spans`, for `spans` without drafts, or for none; returns those reserved.

        No request is preempted for drafts, which may be rejected.
        """
        if not spans or self.kv.reserve(spans):
            return spans
        spans = [without_draft(span) for span in spans]
        while not self.kv.reserve(spans):
            if not self._preempt_for(request, step):
                return []
        return spans

    def _preempt_for(self, request: Request, step: _Step) -> bool:
        """Preempts one request for `request`; returns False if none gives way, or `request` itself does."""
        newcomer = request.status != "running"
        if newcomer and step.declined:
            return False
        if self.queues.finishing:  # its memory is free in the next step: do not preempt for it
            step.declined, step.closed = step.declined or newcomer, step.closed or not newcomer
            return False
        victim = self._guard.victim(request, overruled=step.overruled)
        if victim is None:
            step.declined = step.declined or newcomer
            return False
        if victim in self.flights:
            self.flights.drain()
            step.declined, step.closed = step.declined or newcomer, True
            return False
        # Memory freed for a running request is not given to a waiting one.
        step.closed = step.closed or not newcomer
        self._livelock.note_eviction(victim)
        self._swap_out_or_free(victim)
        self.queues.preempt(victim)
        victim.timing.preempted.append(step.now)
        self.preemptions += 1
        self.preempted.append(victim)
        step.preempt(victim)
        return victim is not request

    def _swap_out_or_free(self, victim: Request) -> None:
        swap_out = self._preemption.swaps_out(victim.live, self.kv) and self.kv.swappable(victim.live) > 0
        if swap_out:
            self.swap_outs += 1
            self.swapped.add(victim)
        self._free(victim, swap_out=swap_out)

    def _free(self, request: Request, *, swap_out: bool = False) -> None:
        self.kv.release(request.live, swap_out=swap_out)
        for sequence in request.live:
            sequence.computed, sequence.held, sequence.draft = 0, False, []


@dataclass(slots=True)
class _Step:
    """What is scheduled so far in the current step, and what is left of its budget."""

    now: float
    budget: int
    pooled: int
    """What is left of `budget` for requests that generate nothing."""
    slots: int
    runners_left: int
    """Requests that ran as the step began and that the order has not come to yet."""
    overruled: bool
    """The default chooses which request to preempt, not the policy."""
    closed: bool = False
    """No request is admitted any more in this step."""
    declined: bool = False
    """The policy preempted none for a waiting request, and is not asked again in this step."""
    scored_cost: int | None = None
    """What a scored token takes of `budget`; None: not known yet."""
    chunks: dict[Request, list[Chunk]] = field(default_factory=dict)
    preempted: set[Request] = field(default_factory=set)
    dropped: list[Drop] = field(default_factory=list)

    @property
    def useful(self) -> bool:
        return bool(self.chunks or self.preempted or self.dropped)

    def preempt(self, victim: Request) -> None:
        tokens = sum(len(chunk.tokens) for chunk in self.chunks.pop(victim, ()))
        self.budget += tokens * token_cost(victim, self.scored_cost or 1)
        self.slots += victim.width
        self.preempted.add(victim)


def _unserved(view: View) -> str:
    if view.running:
        return f"left {len(view.running)} running requests unserved"
    return f"admitted none of {len(view.waiting)} waiting requests while nothing runs"
