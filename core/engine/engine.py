"""The engine: plans, runs, decides and applies, step after step, without knowing any policy or model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from turnout.core.clock import Clock
from turnout.core.engine.admission import Admission, Limits
from turnout.core.engine.apply_decisions import (
    append_placeholders,
    apply_completion,
    apply_continuations,
    compute_again,
)
from turnout.core.engine.decoding_dispatch import Decision, Decisions, DecodingDispatch
from turnout.core.engine.figures import Asked, FigureCollector
from turnout.core.engine.guarded_admission import GuardedAdmission
from turnout.core.engine.inflight_tokens import InFlightTokens, may_defer
from turnout.core.engine.lockstep import Lockstep, LockstepTokens, are_alike
from turnout.core.engine.logits_processing import LogitsProcessors, PreparationWork
from turnout.core.engine.observers import Observers
from turnout.core.engine.pooling.dispatch import PoolingDispatch
from turnout.core.engine.pooling.steps import PoolingSteps
from turnout.core.engine.recording.recorder import Recorder
from turnout.core.engine.request_table import RequestTable
from turnout.core.errors import RequestError
from turnout.core.interfaces.admission import AdmissionPolicy
from turnout.core.interfaces.compute import PipelinedRunner, Runner
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.figures import Figures
from turnout.core.interfaces.observers import StepRecord
from turnout.core.scheduling.flights import Flights
from turnout.core.scheduling.scheduler import Scheduler
from turnout.core.types.decision import Chosen, Completion, Retry
from turnout.core.types.messages import Delta, Stats
from turnout.core.types.plan import Chunk, Logits, Plan
from turnout.core.types.request import MAX_CHUNKS, Request, RequestSpec, Timing

__all__ = ["Engine"]


class Engine:
    """Serves requests in steps. Single-threaded: all work happens in the caller's thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        decodings: Sequence[Decoding],
        limits: Limits,
        clock: Clock,
        observers: Observers | None = None,
        processors: LogitsProcessors | None = None,
        admission: AdmissionPolicy | None = None,
        pooling: PoolingDispatch | None = None,
        *,
        overlaps: bool = False,
        named_decodings: int = 1,
        pipeline: PipelinedRunner | None = None,
    ) -> None:
        """pooling: None: requests that generate nothing are refused.

        overlaps: whether a step is handed to the device before the tokens of the last one are known.

        named_decodings: how many of `decodings`, from the first on, the configuration names.

        pipeline: `runner`, where it can have several steps in flight; steps then do not overlap otherwise.
        """
        self.scheduler = scheduler
        self.runner = runner
        self.limits = limits
        self.clock = clock
        self._dispatch = DecodingDispatch(decodings, limits.vocab_size, named_decodings)
        self._processors = processors or LogitsProcessors()
        self._admission = Admission(limits, scheduler, self._dispatch, self._processors, pooling)
        self._observers = observers or Observers()
        self.shedding = GuardedAdmission(admission, scheduler)
        self._requests = RequestTable(scheduler, self._dispatch, self._observers, self.shedding)
        self._lockstep = Lockstep(scheduler, self._requests)
        self._pooling = PoolingSteps(pooling, self._requests, clock, overlaps=overlaps) if pooling else None
        self._figures = FigureCollector()
        self._asked: list[Asked] = []
        self._kv = scheduler.kv
        self._queues = scheduler.queues
        self._overlaps = overlaps
        self._pipeline = pipeline
        scheduler.flights = Flights(1 if pipeline is None else pipeline.stages)
        self._flights: deque[tuple[Plan, int, float]] = deque()
        """Steps of a pipeline that have begun, their numbers, and when they began."""
        self._in_flight: list[InFlightTokens | LockstepTokens] = []
        """The in-flight tokens of the latest step, for each decoding strategy."""
        self._steps = self._computed_tokens = 0

    @property
    def busy(self) -> bool:
        return bool(self._queues or self._flights)

    def stats(self) -> Stats:
        return Stats(
            steps=self._steps,
            running=self._queues.running_count,
            waiting=self._queues.waiting_count,
            kv_capacity=self._kv.capacity,
            kv_free=self._kv.free,
            preemptions=self.scheduler.preemptions,
            swap_outs=self.scheduler.swap_outs,
            computed_tokens=self._computed_tokens,
            output_tokens=self._requests.output_tokens,
            policy_faults=self.scheduler.policy_faults,
            slow_orders=self.scheduler.slow_orders,
            counters=self._dispatch.counters(),
            figures=self._figures.collect(self._plugins()),
        )

    def _plugins(self) -> Iterator[Asked]:
        """Those that may have figures."""
        policy, predictor = self.scheduler.policy, self.scheduler.predictions.predictor
        yield Asked("scheduler", policy, policy.figures)
        yield Asked("length_predictor", predictor, predictor.figures)
        yield from (Asked("decoding", decoding, decoding.figures) for decoding in self._dispatch.all)
        yield from (Asked("logits_processor", each, each.figures) for each in self._processors.all)
        yield from (Asked("observer", observer, observer.figures) for observer in self._observers.chosen)
        if (admission := self.shedding.policy) is not None:
            yield Asked("admission", admission, admission.figures)
        yield from self._asked

    def show_figures(self, kind: str, plugin: object, figures: Callable[[], Figures]) -> None:
        """Adds a plugin that the engine does not know itself to those that are asked for figures."""
        self._asked.append(Asked(kind, plugin, figures))

    def locate(self, *, arm: str = "", replica: str = "") -> None:
        """Says which engine this is among several, for observers."""
        self._observers.arm, self._observers.replica = arm, replica

    @property
    def place(self) -> str:
        """Its arm and its replica, as far as it has them, in one word."""
        names = (self._observers.arm, self._observers.replica)
        return "-".join(name for name in names if name)

    def tell_begun(self, hear: Callable[[str], None]) -> None:
        """Has `hear` called with the id of each request, before memory is first reserved for it."""
        self.scheduler.hear_begun = lambda request: hear(request.id)

    def begun(self) -> list[str]:
        """The ids of those that were told of and have not ended."""
        return [request.id for request in (*self._queues.held, *self._queues.waiting) if request.begun]

    def watch(self, epoch: float | None) -> Recorder | None:
        """Begins a new record of steps and requests, and returns it; None: records no longer.

        epoch: what to add to the engine's clock for seconds since the epoch.
        """
        recorder = None if epoch is None else Recorder(self.scheduler, self.clock, epoch)
        self._observers.recorder = recorder
        self.scheduler.watch_orders(None if recorder is None else recorder.hear_order)
        return recorder

    def close(self) -> None:
        """Tells observers that the engine ends."""
        self._observers.engine_closed(self._steps, self._requests.output_tokens)

    # -------------------------------------------------------------- requests

    def offer_decodings(self, by_name: Mapping[str, Decoding]) -> None:
        """Lets requests ask for these strategies by name (`SamplingParams.decoding`); none drafts beyond
        those that the engine was built with."""
        self._dispatch.offer(by_name)

    def warm_up(self) -> None:
        """Does ahead what first requests would wait for; to be called in a thread of its own."""
        self._processors.warm_up()

    def preparation(self, spec: RequestSpec) -> list[PreparationWork]:
        """Returns the work to do before `add`, in any thread; that and this may raise RequestError."""
        return self._processors.preparation(spec) if spec.pooling is None else []

    def add(self, spec: RequestSpec) -> None:
        """Queues a request. Raises RequestError, with the numbers, if it can never be served.

        Raises Overloaded if there is too much to do.
        """
        self._requests.check_new(spec.id)
        if spec.resume is None:
            self._admission.check_waiting()
        now = self.clock()
        request = self._admission.admit(spec, now)
        if spec.resume is None:
            self.shedding.check(request, now)
        self._requests.arrive(request)
        self._observers.request_arrived(request, self._queues.waiting_count)

    def abort(self, request_id: str, index: int | None = None) -> Timing | None:
        """Ends a request, or one of its choices, and frees its memory; ignores unknown ones.

        Returns the request's timing, apply_completion if that was its end; None for an unknown one.
        """
        return self._requests.abort(request_id, index, self.clock())

    def abort_all(self) -> None:
        """Ends all requests, as `abort` does."""
        for request_id in self._requests.ids:
            self.abort(request_id)

    # -------------------------------------------------------------- a step

    def step(self) -> list[Delta]:
        """Computes one plan and returns its deltas, in no particular order.

        Where steps overlap, it returns the deltas of the step before, whose tokens are copied to the host
        while the device computes this one. In a pipeline, it returns those of the step that began first, or
        none if another may begin before.
        """
        self._dispatch.draft(r for r in self._queues.running if r.decode_ready and r.live[0].tokens[-1] >= 0)
        started = self.clock()
        plan, dropped = self.scheduler.plan(started)
        recorder = self._observers.recorder
        if recorder is not None:
            recorder.planned(plan, self._steps + 1, started)
        if self.shedding.watches:
            self.shedding.note_step(started)
        if self._observers.of_preemptions:
            for request in self.scheduler.preempted:
                self._observers.request_preempted(request)
        deltas = [self._requests.drop(drop, started) for drop in dropped]
        if self._pipeline is not None:
            return deltas + self._through_stages(self._pipeline, plan, started)
        logits = self.runner.run(self._with_in_flight(plan)) if plan else None
        deltas += self._resolve_in_flight()
        if logits is None:
            return deltas
        self._record(plan)
        deltas += self._take_in(plan, logits, self._steps, started)
        if recorder is not None:
            recorder.stepped()
        return deltas

    def _through_stages(self, pipeline: PipelinedRunner, plan: Plan, started: float) -> list[Delta]:
        """Begins a step; returns the deltas of the first one in flight, unless there is room for another."""
        flights = self._flights
        if plan:
            pipeline.begin(plan)
            self.scheduler.flights.begin(plan)
            self._record(plan)
            if (recorder := self._observers.recorder) is not None:
                recorder.stepped()  # watchers see what the first stage does
            flights.append((plan, self._steps, started))
            if len(flights) < pipeline.stages:
                return []
        if not flights:
            return []
        plan, number, started = flights.popleft()
        logits = pipeline.finish()
        self.scheduler.flights.end(plan)
        if any(sequence.request.status == "gone" for sequence in logits.rows):
            kept = {each: rows for each, rows in logits.rows.items() if each.request.status != "gone"}
            logits = replace(logits, rows=kept)
        return self._take_in(plan, logits, number, started)

    def _take_in(self, plan: Plan, logits: Logits, number: int, started: float) -> list[Delta]:
        """Reads what a step computed, decides and applies; returns the deltas."""
        deltas: list[Delta] = []
        for sequence, scores in logits.prompts.items():
            sequence.request.prompt_scores += scores
        if self._pooling is not None and logits.hidden:
            deltas += self._pooling.take_in(plan.chunks, logits)
        deltas += self._decide(logits)
        if self._observers.of_steps:
            self._observers.step_finished(self._step_record(plan, number, started))
        return deltas

    def _with_in_flight(self, plan: Plan) -> Plan:
        if not self._in_flight:
            return plan
        return replace(plan, chosen=tuple(each.chosen.tokens for each in self._in_flight))

    def _record(self, plan: Plan) -> None:
        self._steps += 1
        self._computed_tokens += plan.tokens
        for chunk in plan.chunks:
            end = chunk.start + len(chunk.tokens)
            if chunk.rows == 0:
                chunk.sequence.computed = end
                self._kv.commit(chunk.sequence, end)
                if chunk.sequence.request.spec.traced:
                    self._note_chunk(chunk)
            else:  # the KV of a draft token is final once it is accepted
                chunk.sequence.computed = end - (chunk.rows - 1)

    def _note_chunk(self, chunk: Chunk) -> None:
        chunks = chunk.sequence.request.timing.chunks
        if len(chunks) < MAX_CHUNKS:
            chunks.append((self.clock(), len(chunk.tokens)))

    def _ready(self, logits: Logits) -> dict[Decoding, list[Request]]:
        """Groups the requests whose sequences all have logits by their decoding strategy."""
        ready: dict[Decoding, list[Request]] = {}
        of, group = self._dispatch.of, list[Request]()
        has, latest = logits.rows.__contains__, None
        for sequence in logits.rows:
            request = sequence.request
            live = request.live
            if live and live[0] is sequence and (len(live) == 1 or all(map(has, live))):
                if request.decoding is not latest:  # rarely: a lookup for each takes a third longer
                    latest = request.decoding
                    group = ready.setdefault(of(request), [])
                group.append(request)
        return ready

    def _decide(self, logits: Logits) -> list[Delta]:
        """Asks all strategies and applies their decisions; defers the tokens if all requests allow it."""
        ready = self._ready(logits)
        answers = {each: self._dispatch.decide(each, requests, logits) for each, requests in ready.items()}
        chosen = {each: answer for each, answer in answers.items() if isinstance(answer, Chosen)}
        alike = {
            each
            for each, answer in chosen.items()
            if self._dispatch.trusts(each) and are_alike(ready[each], answer)
        }
        later = self._overlaps and len(chosen) == len(answers) and not self._dispatch.any_drafts(chosen)
        later = later and all(each in alike or all(map(may_defer, ready[each])) for each in chosen)
        deltas = []
        for decoding, answer in answers.items():
            requests = ready[decoding]
            if not isinstance(answer, Chosen):
                deltas += self._apply_all(answer)
            elif decoding in alike and later:
                unknown = LockstepTokens(decoding, answer, self.clock(), requests)
                self._lockstep.append_placeholders(unknown, self._tokens_in_flight)
                self._in_flight.append(unknown)
            elif decoding in alike and (tokens := self._dispatch.read(answer)) is not None:
                known = LockstepTokens(decoding, answer, self.clock(), requests)
                self._lockstep.append_placeholders(known)
                deltas += self._lockstep.resolve(known, tokens, known.chosen_at)
            elif later:
                deltas += self._append_placeholders(decoding, requests, answer, logits)
            else:
                deltas += self._apply_all(
                    self._dispatch.resolve_decisions(decoding, requests, answer, logits)
                )
        return deltas

    def _apply_all(self, decisions: Decisions) -> list[Delta]:
        now = self.clock()
        deltas = []
        for request, chosen in decisions.items():
            if request.fault is not None or isinstance(chosen, str):
                deltas += self._requests.fail(request, request.fault or str(chosen), now)
            else:
                deltas += self._apply(request, chosen, now)
        return deltas

    def _apply(self, request: Request, chosen: Decision, now: float) -> list[Delta]:
        if isinstance(chosen, Retry):
            compute_again(request)
            return []
        before, parents = request.output_tokens, request.live
        if not isinstance(chosen, Completion):
            deltas, ended = apply_continuations(request, chosen, self._kv)
        elif len(chosen.choices) == request.params.n:
            deltas, ended = apply_completion(request, chosen), list(request.live)
        else:
            return self._requests.fail(request, RequestError(_too_few(chosen)), now)
        self._requests.record_progress(request, parents, before, now)
        return self._requests.deliver(request, deltas, ended, now)

    # -------------------------------------------------------------- in-flight tokens

    @property
    def _tokens_in_flight(self) -> int:
        return sum(len(each.chosen.parents) for each in self._in_flight)

    def _append_placeholders(
        self, decoding: Decoding, requests: list[Request], answer: Chosen, logits: Logits
    ) -> list[Delta]:
        """Continues requests by tokens that are not known yet; `_resolve_in_flight` replaces them."""
        now, chosen = self.clock(), self._dispatch.held(decoding, answer, logits)
        if isinstance(chosen, str):
            return [delta for request in requests for delta in self._requests.fail(request, chosen, now)]
        rows = self._dispatch.row_owners(decoding, requests, chosen)
        first, deltas = self._tokens_in_flight, list[Delta]()
        in_flight = InFlightTokens(decoding, chosen, now)
        if not all(isinstance(owners, str) for owners in rows.values()):
            self._in_flight.append(in_flight)
        for request, owners in rows.items():
            if request.fault is not None or isinstance(owners, str):
                deltas += self._requests.fail(request, request.fault or str(owners), now)
                continue
            before, parents = request.output_tokens, request.live
            in_flight.owners[request] = append_placeholders(request, owners, first, self._kv)
            self._requests.record_progress(request, parents, before, now)
            if not request.live[0].room:
                self._queues.finish(request)
        return deltas

    def _resolve_in_flight(self) -> list[Delta]:
        """Waits for the tokens chosen in the step before, if they are in flight, and for nothing later."""
        in_flight, self._in_flight = self._in_flight, []
        deltas = [] if self._pooling is None else self._pooling.resolve()
        for each in in_flight:
            if isinstance(each, InFlightTokens):
                deltas += self._resolve(each)
            elif (tokens := self._dispatch.read(each.chosen)) is None:
                deltas += self._resolve(each.apart())
            else:
                deltas += self._lockstep.resolve(each, tokens, self.clock())
        return deltas

    def _resolve(self, in_flight: InFlightTokens) -> list[Delta]:
        tokens, now = self._dispatch.resolve(in_flight.decoding, in_flight.chosen), self.clock()
        deltas = []
        for request in in_flight.owners:
            if request.status == "gone":
                continue
            if isinstance(tokens, str):
                deltas += self._requests.fail(request, tokens, now)
                continue
            if request.timing.first_token == in_flight.chosen_at:
                request.timing.first_token = now
            known = in_flight.deltas(request, tokens)
            if isinstance(known, str):
                deltas += self._requests.fail(request, known, now)
            else:
                deltas += self._requests.deliver(request, *known, now)
        return deltas

    def _step_record(self, plan: Plan, number: int, started: float) -> StepRecord:
        return StepRecord(
            number=number,
            started=started,
            ended=self.clock(),
            tokens=plan.tokens,
            rows=sum(chunk.rows for chunk in plan.chunks),
            sequences=len(plan.chunks),
            running=self._queues.running_count,
            waiting=self._queues.waiting_count,
            kv_free=self._kv.free,
            arm=self._observers.arm,
            replica=self._observers.replica,
        )


def _too_few(completion: Completion) -> str:
    found, asked = len(completion.choices), completion.request.params.n
    return f"n={asked} choices were asked for, but what the request allows leaves only {found}"
