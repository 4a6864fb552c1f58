"""Records what an engine does while it is watched: its steps, what its policy decides, its requests.

An engine that is not watched has no recorder. One that has makes a pass over the plan where requests are
admitted, and for each report a pass over the live requests; the detail of a report is bounded. Most steps
decode what the step before decoded: such a one is told by a single word.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from turnout.core.clock import Clock
from turnout.core.engine.recording.kv_cells import live_kv
from turnout.core.engine.recording.tracks import Tracks
from turnout.core.interfaces.kv import BlockMap
from turnout.core.scheduling.order import Order
from turnout.core.scheduling.policy_guard import Answer
from turnout.core.scheduling.scheduler import Scheduler
from turnout.core.types.live.news import EngineNews, Grant, LiveKV, LiveStats, StepTrace
from turnout.core.types.messages import Stats
from turnout.core.types.plan import Chunk, Plan
from turnout.core.types.request import Request, RequestView, Sequence, request_of

__all__ = ["Recorder"]

MAX_NAMED = 64
"""Requests of a step's order, and of its grants, that are named."""
MAX_NAMES = 500
"""Requests that the steps of one report name in all: they bound its size, and what it costs."""
MAX_STEPS = 1000
"""Steps of one report; those after them are left out."""
MAX_EXPLAINED = 16
"""Admissions and preemptions of a step that the policy is asked about."""
KV_SECONDS, KV_SHARE = 1.0, 500
"""The least time between two looks at the KV pool, in seconds and as a multiple of what the last one took."""


class Recorder:
    """Gathers the news of an engine, from its making on."""

    def __init__(self, scheduler: Scheduler, clock: Clock, epoch: float) -> None:
        """epoch: what to add to the clock for seconds since the epoch."""
        self._scheduler, self._clock, self._epoch = scheduler, clock, epoch
        self._tracks = Tracks(epoch)
        self._tracks.begin(scheduler.queues.held, scheduler.queues.waiting)
        self._steps: list[StepTrace] = []
        self._step: StepTrace | None = None
        """The one that is being computed."""
        self._tokens = 0
        """Its tokens, if it is."""
        self._order: list[Request] | None = None
        self._before: tuple[list[Request], list[Sequence], int] | None = None
        """Of the step before, if that only decoded and was told: its order, its sequences, and how far the
        first had come, less the step's number."""
        self._policy_seconds = 0.0
        self._names = MAX_NAMES
        """How many requests the steps of this report may still name."""
        self._explained = False
        """The policy was asked about its order since the last report."""
        self._began = True
        self._next_kv = 0.0
        self._map = scheduler.kv if isinstance(scheduler.kv, BlockMap) else None
        self._evicted = self._map.evicted if self._map is not None else 0

    # -------------------------------------------------------------- requests

    def arrived(self, request: Request) -> None:
        self._tracks.arrive(request)

    def ended(self, request: Request, reason: str) -> None:
        finished = request.timing.finished
        self._tracks.end(request, reason, self._clock() if finished is None else finished)

    # -------------------------------------------------------------- steps

    def hear_order(self, answer: Answer, seconds: float) -> None:
        """Notes a policy's answer, before it is served."""
        self._policy_seconds += seconds
        if not self._scheduler.queues.waiting_count:
            self._order = []
            return
        if self._names <= 0:
            return
        if isinstance(answer, Order):
            answer.keep()
        queues = self._scheduler.queues
        read = islice(answer, queues.running_count + queues.waiting_count)  # a stretch may never end
        waiting = (entry for entry in read if type(entry) is RequestView)
        requests = (request for view in waiting if (request := request_of(view)).status == "waiting")
        self._order = list(islice(requests, MAX_NAMED))

    def planned(self, plan: Plan, number: int, started: float) -> None:
        """Notes what a step is to compute. number: which step of the engine it is."""
        self._close(started)
        scheduler = self._scheduler
        step = StepTrace(
            number=number,
            started=self._epoch + started,
            policy_ms=round(self._policy_seconds * 1000, 3),
            rows=len(plan.chunks),
        )
        self._tokens = len(plan.chunks)
        order, self._order, self._policy_seconds = self._order, None, 0.0
        for move in plan.moves:
            step.moved[move.way] = step.moved.get(move.way, 0) + move.length
        if scheduler.caught_up or scheduler.preempted:
            filled = _filled(plan, scheduler)
            admitted = self._turn(step, filled, started)
            self._before = None
            self._detail(step, plan, filled, order)
            self._explain(step, [*admitted[:MAX_EXPLAINED], *scheduler.preempted[:MAX_EXPLAINED]])
        else:
            self._note_decoding(step, plan, order)
        self._step = step

    def _turn(self, step: StepTrace, filled: list[Chunk], started: float) -> list[Request]:
        """Notes which requests were admitted, and returns them; and which had to give way."""
        scheduler, tracks = self._scheduler, self._tracks
        step.rows += sum([chunk.rows - 1 for chunk in filled])
        self._tokens += sum([len(chunk.tokens) - 1 for chunk in filled])
        fresh = dict.fromkeys([chunk.sequence.request for chunk in filled])
        admitted = [request for request in fresh if tracks.admit(request, started)]
        step.admitted = [request.id for request in admitted[:MAX_NAMED]]
        for request in scheduler.preempted:
            swapped = request in scheduler.swapped
            tracks.preempt(request, started, swapped=swapped)
            step.preempted.append((request.id, "swap" if swapped else "recompute"))
        return admitted

    def _note_decoding(self, step: StepTrace, plan: Plan, order: list[Request] | None) -> None:
        """Notes a step in which all requests compute their next token, and nothing else."""
        now = None
        if order is not None and plan.chunks:
            sequences = [chunk.sequence for chunk in plan.chunks[:MAX_NAMED]]
            now = order, sequences, plan.chunks[0].start - step.number
            if now == self._before:
                step.again = True
                self._names -= len(order)  # it was read
                return
        self._detail(step, plan, [], order)
        self._before = None if step.thin else now

    def stepped(self) -> None:
        """Notes that what was planned is computed."""
        now = self._clock()
        if self._step is not None:
            self._step.tokens = self._tokens
        self._tracks.note_decoding(now)
        self._close(now)

    def _close(self, now: float) -> None:
        step, self._step = self._step, None
        if step is None or len(self._steps) >= MAX_STEPS or not (step.tokens or step.preempted):
            return
        queues = self._scheduler.queues
        step.ended = self._epoch + now
        step.running, step.waiting = queues.running_count, queues.waiting_count
        step.kv_free = self._scheduler.kv.free
        if self._map is not None:
            before, self._evicted = self._evicted, self._map.evicted
            step.evicted = self._evicted - before
        self._steps.append(step)

    def _detail(self, step: StepTrace, plan: Plan, filled: list[Chunk], order: list[Request] | None) -> None:
        if self._names <= 0:
            step.thin = True
            return
        step.grants = [_grant(chunk) for chunk in islice(filled, MAX_NAMED)]
        caught_up = self._scheduler.caught_up
        others = (chunk for chunk in plan.chunks if chunk.sequence not in caught_up)
        step.grants += [_grant(chunk) for chunk in islice(others, MAX_NAMED - len(step.grants))]
        named: dict[Request, None] = dict.fromkeys(order or ())
        if order is not None:
            step.order = [request.id for request in order]
        self._names -= len(step.grants) + len(named) + len(step.admitted)
        if not self._explained:
            self._explained = True
            granted = (chunk.sequence.request for chunk in islice(plan.chunks, MAX_NAMED))
            self._explain(step, [*named, *granted])

    def _explain(self, step: StepTrace, requests: Iterable[Request]) -> None:
        for request in requests:
            if request.id not in step.why and (text := self._scheduler.why(request)):
                step.why[request.id] = text

    # -------------------------------------------------------------- reports

    def news(self, stats: Stats, scheduler: str) -> EngineNews:
        """Returns what happened since the last call. scheduler: the policy, as it is written."""
        now = self._clock()
        requests, progress = self._tracks.take_requests()
        began, self._began = self._began, False
        steps, self._steps = self._steps, []
        self._names, self._explained, self._before = MAX_NAMES, False, None
        return EngineNews(
            at=self._epoch + now,
            began=began,
            scheduler=scheduler,
            stats=LiveStats(**{name: getattr(stats, name) for name in LiveStats.__struct_fields__}),
            requests=requests,
            progress=progress,
            spans=self._tracks.take_spans(),
            breadths=self._tracks.take_breadths(),
            steps=steps,
            kv=self._kv(now),
        )

    def _kv(self, now: float) -> LiveKV | None:
        if now < self._next_kv:
            return None
        kv = live_kv(self._scheduler.kv.snapshot(), self._scheduler.kv)
        taken = self._clock() - now
        self._next_kv = now + max(KV_SECONDS, KV_SHARE * taken)
        return kv


def _filled(plan: Plan, scheduler: Scheduler) -> list[Chunk]:
    """The chunks of sequences that compute more than their next token, or got their first memory."""
    caught_up = scheduler.caught_up
    return [chunk for chunk in plan.chunks if chunk.sequence in caught_up] if caught_up else []


def _grant(chunk: Chunk) -> Grant:
    request, tokens = chunk.sequence.request, len(chunk.tokens)
    decodes = chunk.rows == tokens and chunk.start >= len(request.prompt)
    total = chunk.sequence.end
    return request.id, tokens, "decode" if decodes else "prefill", chunk.end, total
