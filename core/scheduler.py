"""The mechanism that turns a policy's order into a plan: budget, KV memory, preemption.

There is no prefill and no decode: a sequence has tokens, and some of them are computed. A step grants
requests, in the policy's order, as much of the difference as the budget and the memory allow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from turnout.core.errors import PolicyError
from turnout.core.interfaces import KVCache, SchedulingPolicy, Share, Span, View
from turnout.core.plan import Chunk, Plan
from turnout.core.request import Request

__all__ = ["Scheduler"]

logger = logging.getLogger(__name__)


class Scheduler:
    """Owns the queues. Asks the policy for an order, never the other way round."""

    def __init__(
        self,
        policy: SchedulingPolicy,
        kv: KVCache,
        *,
        max_tokens: int,
        max_sequences: int,
        strict: bool = False,
    ) -> None:
        self.policy = policy
        self.kv = kv
        self.max_tokens = max_tokens
        """Token budget of one step, over all requests."""
        self.max_sequences = max_sequences
        """Sequences that may be running at once."""
        self.strict = strict
        """A policy's fault is fatal; otherwise the step falls back to arrival order."""
        self.preemptions = 0
        self.policy_faults = 0
        self._running: dict[Request, None] = {}
        self._preempted: dict[Request, None] = {}
        self._arrived: dict[Request, None] = {}

    # -------------------------------------------------------------- queues

    @property
    def running(self) -> tuple[Request, ...]:
        """In order of admission."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Request, ...]:
        """Preempted ones first, then in order of arrival."""
        return (*self._preempted, *self._arrived)

    @property
    def waiting_count(self) -> int:
        return len(self._preempted) + len(self._arrived)

    @property
    def busy(self) -> bool:
        return bool(self._running or self._preempted or self._arrived)

    def add(self, request: Request) -> None:
        self._arrived[request] = None

    def remove(self, request: Request) -> None:
        """Forget a request that ended, wherever it is, and free what it holds."""
        self._free(request)
        for queue in (self._running, self._preempted, self._arrived):
            queue.pop(request, None)

    # -------------------------------------------------------------- a step

    def plan(self, now: float) -> Plan:
        """What to compute next. Empty when nothing can run.

        Raises PolicyError when strict and the policy is at fault.
        """
        view = View(now, self.running, self.waiting, self.kv, self._fits)
        step = self._serve(self._ordered(view))
        if not step.granted and not step.preempted and self.busy:
            self._fault(PolicyError(_unserved(view)))
            step = self._serve(_arrival_order(view, set()))
        chunks = [_chunk(span) for grants in step.granted.values() for span in grants]
        return Plan(chunks, self.kv.drain())

    def _serve(self, shares: Iterator[Share]) -> _Step:
        step = _Step(self.max_tokens, self._free_slots())
        for request, limit in shares:
            if step.budget <= 0:
                break
            if request in step.preempted or (request not in self._running and step.refuses(request)):
                continue
            grants = self._grants(request, min(limit, step.budget))
            if grants and self._make_room(request, grants, step):
                self._grant(request, grants, step)
            elif request not in self._running and self.policy.head_of_line:
                step.closed = True
        return step

    def _grants(self, request: Request, budget: int) -> list[Span]:
        """What to compute for a request within `budget`; empty when that is too little for it.

        Several sequences catch up one at a time, so that each finds what its siblings computed; once
        level they step together or not at all.
        """
        if budget <= 0:
            return []
        starts = [
            sequence.computed if sequence.held else self.kv.cached(sequence) for sequence in request.live
        ]
        wanted = [
            Span(sequence, start, sequence.end) for sequence, start in zip(request.live, starts, strict=True)
        ]
        if len(wanted) == 1:
            sequence, start, upto = wanted[0]
            return [Span(sequence, start, min(upto, start + budget))]
        for sequence, start, _ in wanted:
            last = len(sequence.tokens) - 1
            if start < last:
                return [Span(sequence, start, min(last, start + budget))]
        return wanted if sum(span.tokens for span in wanted) <= budget else []

    def _free_slots(self) -> int:
        return self.max_sequences - sum(request.width for request in self._running)

    def _fits(self, request: Request) -> bool:
        if request not in self._running and request.width > self._free_slots():
            return False
        grants = self._grants(request, self.max_tokens)
        return bool(grants) and self.kv.fits(grants)

    def _make_room(self, request: Request, grants: list[Span], step: _Step) -> bool:
        """Reserve memory for `grants`, preempting whom the policy names until they fit."""
        while not self.kv.reserve(grants):
            victim = self._victim(request)
            if victim is None:
                return False
            # What a running request had freed is for those who run: nobody is admitted into it.
            step.closed = step.closed or request in self._running
            self._preempt(victim, step)
            if victim is request:
                return False
        return True

    def _preempt(self, victim: Request, step: _Step) -> None:
        self._free(victim)
        self._running.pop(victim)
        self._preempted = {victim: None, **self._preempted}
        self.preemptions += 1
        step.preempt(victim)

    def _free(self, request: Request) -> None:
        self.kv.release(request.live)
        for sequence in request.live:
            sequence.computed, sequence.held, sequence.draft = 0, False, []

    def _grant(self, request: Request, grants: list[Span], step: _Step) -> None:
        for sequence, start, _ in grants:
            sequence.computed, sequence.held = start, True
        if request not in self._running:
            request.cached_tokens = request.cached_tokens or grants[0].start
            self._preempted.pop(request, None)
            self._arrived.pop(request, None)
            self._running[request] = None
            step.slots -= request.width
        step.granted[request] = grants
        step.budget -= sum(span.tokens for span in grants)

    # -------------------------------------------------------------- a policy's faults

    def _ordered(self, view: View) -> Iterator[Share]:
        """The policy's order, checked as it is served; in arrival order from where it goes wrong.

        The policy answers in full before anything changes: while it is served, requests change state.
        """
        served: set[Request] = set()
        try:
            entries = list(self.policy.order(view))
            for entry in entries:
                share = entry if isinstance(entry, Share) else Share(entry, self.max_tokens)
                self._check_entry(share.request, served)
                served.add(share.request)
                yield share
        except Exception as error:
            self._fault(error)
            yield from _arrival_order(view, served)

    def _check_entry(self, request: Request, served: set[Request]) -> None:
        if not (request in self._arrived or request in self._running or request in self._preempted):
            raise PolicyError(f"ordered {request!r}, which is neither running nor waiting")
        if request in served:
            raise PolicyError(f"ordered {request!r} twice")

    def _victim(self, request: Request) -> Request | None:
        """The policy's choice of who gives way, or the default's where that cannot be carried out."""
        running = self.running
        if not running:
            return None
        try:
            victim = self.policy.victim(request, running)
            if victim is not None and victim not in self._running:
                raise PolicyError(f"named {victim!r} as victim, which is not running")
            return victim
        except Exception as error:
            self._fault(error)
            return SchedulingPolicy.victim(self.policy, request, running)

    def observe(self, request: Request, tokens: int, now: float) -> None:
        """Tell the policy what a request produced."""
        try:
            self.policy.observe(request, tokens, now)
        except Exception as error:
            self._fault(error)

    def _fault(self, error: Exception) -> None:
        self.policy_faults += 1
        message = f"scheduling policy {type(self.policy).__name__} failed: {error or type(error).__name__}"
        if self.strict:
            raise PolicyError(message) from error
        if self.policy_faults == 1:
            logger.error("%s; served in arrival order instead (said once)", message, exc_info=error)


@dataclass(slots=True)
class _Step:
    """The running account of one step's grants."""

    budget: int
    slots: int
    closed: bool = False
    granted: dict[Request, list[Span]] = field(default_factory=dict)
    preempted: set[Request] = field(default_factory=set)

    def refuses(self, request: Request) -> bool:
        return self.closed or request.width > self.slots

    def preempt(self, victim: Request) -> None:
        self.budget += sum(span.tokens for span in self.granted.pop(victim, ()))
        self.slots += victim.width
        self.preempted.add(victim)


def _arrival_order(view: View, served: set[Request]) -> Iterator[Share]:
    for request in (*view.running, *view.waiting):
        if request not in served:
            yield Share(request, request.pending)


def _unserved(view: View) -> str:
    if view.running:
        return f"left {len(view.running)} running requests unserved"
    return f"admitted none of {len(view.waiting)} waiting requests while nothing runs"


def _chunk(span: Span) -> Chunk:
    """The slice, with logits for its positions from the last token on; drafts that did not fit go."""
    sequence, start, end = span
    length = len(sequence.tokens)
    rows = max(0, end - length + 1)
    sequence.draft = sequence.draft[: max(0, rows - 1)]
    tokens = sequence.tokens[start:end] + sequence.draft[max(0, start - length) :]
    return Chunk(sequence, start, tokens, rows)
