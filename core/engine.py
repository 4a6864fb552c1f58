"""The step loop: plan, run, decide, apply. It knows no policy, no memory layout and no model."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from turnout.core.clock import Clock
from turnout.core.errors import Overloaded, RequestError
from turnout.core.interfaces import Decoding, Runner
from turnout.core.messages import Delta, Stats
from turnout.core.observers import Observers, StepRecord
from turnout.core.plan import Logits, Plan
from turnout.core.policy import Drop
from turnout.core.request import Continuation, Request, RequestSpec
from turnout.core.request import Sequence as TokenSequence
from turnout.core.scheduler import Scheduler
from turnout.core.view import unveil

__all__ = ["Engine", "Limits"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What the engine holds requests to, beyond what its scheduler and KV pool do."""

    max_model_len: int
    """Tokens of prompt and output together."""
    vocab_size: int
    max_waiting: int
    """Requests that may wait; more are refused as overload."""
    eos_token_ids: frozenset[int] = frozenset()


class Engine:
    """Serves requests in steps. Single-threaded: everything happens in the caller's thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        decodings: Sequence[Decoding],
        limits: Limits,
        clock: Clock,
        observers: Observers | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.decodings = tuple(decodings)
        """Asked in this order which one serves a request."""
        self.limits = limits
        self.clock = clock
        self._observers = observers or Observers()
        self._kv = scheduler.kv
        self._queues = scheduler.queues
        self._requests: dict[str, Request] = {}
        self._complaints: set[tuple[str, type[Exception]]] = set()
        self._steps = self._computed_tokens = self._output_tokens = 0

    @property
    def busy(self) -> bool:
        return bool(self._queues)

    def stats(self) -> Stats:
        return Stats(
            steps=self._steps,
            running=self._queues.running_count,
            waiting=self._queues.waiting_count,
            kv_capacity=self._kv.capacity,
            kv_free=self._kv.free,
            preemptions=self.scheduler.preemptions,
            computed_tokens=self._computed_tokens,
            output_tokens=self._output_tokens,
            policy_faults=self.scheduler.policy_faults,
        )

    # -------------------------------------------------------------- in

    def add(self, spec: RequestSpec) -> None:
        """Queue a request. Raises RequestError when it can never be served, with the sums."""
        if spec.id in self._requests:
            raise RequestError(f"a request with id {spec.id!r} is being served already")
        if self._queues.waiting_count >= self.limits.max_waiting:
            raise Overloaded(f"{self.limits.max_waiting} requests are waiting already; try again later")
        request = self._admit(spec)
        self._requests[spec.id] = request
        self._queues.arrive(request)

    def _admit(self, spec: RequestSpec) -> Request:
        limits, prompt = self.limits, len(spec.prompt)
        self._check_tokens(spec)
        if prompt >= limits.max_model_len:
            raise RequestError(
                f"the prompt has {prompt} tokens, but the context length is {limits.max_model_len} tokens "
                "and at least one is needed for the output; shorten the prompt",
                "prompt",
            )
        room = limits.max_model_len - prompt
        wanted = room if spec.params.max_tokens is None else spec.params.max_tokens
        if wanted > room:
            raise RequestError(
                f"the context length is {limits.max_model_len} tokens, but {prompt + wanted} were requested: "
                f"{prompt} in the prompt and max_tokens={wanted}; ask for at most {room}",
                "max_tokens",
            )
        arrival = self.clock() if spec.arrival is None else spec.arrival
        stops = frozenset(spec.params.stop_token_ids)
        if not spec.params.ignore_eos:
            stops |= limits.eos_token_ids
        request = Request(spec, self._decoding(spec), arrival, prompt + wanted, stops)
        self._check_fits(request)
        return request

    def _check_tokens(self, spec: RequestSpec) -> None:
        if not spec.prompt:
            raise RequestError("the prompt is empty: at least one token is needed", "prompt")
        vocabulary = range(self.limits.vocab_size)
        for name, tokens in (
            ("prompt", spec.prompt),
            ("stop_token_ids", spec.params.stop_token_ids),
            ("logit_bias", spec.params.logit_bias),
        ):
            if tokens and (min(tokens) not in vocabulary or max(tokens) not in vocabulary):
                bad = next(token for token in tokens if token not in vocabulary)
                raise RequestError(
                    f"token id {bad} is outside the vocabulary of {len(vocabulary)} tokens", name
                )

    def _check_fits(self, request: Request) -> None:
        capacity = self.scheduler.capacity
        slots = min(capacity.sequences, capacity.tokens)
        if request.width > slots:
            raise RequestError(
                f"the request needs {request.width} sequences at once, at most {slots} can run", "n"
            )
        if not self._kv.holds(request.limit, request.width):
            raise RequestError(
                f"the request may need {request.width} x {request.limit} tokens of KV memory "
                f"(prompt {len(request.prompt)} + max_tokens {request.limit - len(request.prompt)}), "
                f"the whole pool holds {self._kv.capacity}; ask for less or raise --kv-memory",
                "max_tokens",
            )

    def _decoding(self, spec: RequestSpec) -> Decoding:
        for decoding in self.decodings:
            try:
                if decoding.accepts(spec.params) and decoding.width(spec.params) > 0:
                    return decoding
            except Exception as error:
                raise RequestError(self._complain(decoding, error)) from error
        raise RequestError("no decoding strategy serves these sampling parameters")

    def abort(self, request_id: str, index: int | None = None) -> None:
        """End a request, or one of its choices, and free its memory; unknown ones are ignored."""
        request = self._requests.get(request_id)
        if request is None:
            return
        gone = [sequence for sequence in request.live if index is None or sequence.index == index]
        self._retire(request, gone, "abort", self.clock())

    def _retire(self, request: Request, gone: Collection[TokenSequence], reason: str, now: float) -> None:
        """Sequences of a request that ended, and the request itself with the last of them."""
        if not gone:
            return
        self._kv.release(gone)
        request.live = tuple(sequence for sequence in request.live if sequence not in gone)
        if not request.live:
            self.scheduler.remove(request)
            self._close(request, reason, now)

    def _close(self, request: Request, reason: str, now: float) -> None:
        del self._requests[request.id]
        request.timing.finished = now
        if reason in ("stop", "length"):
            self.scheduler.predictions.observe(request.view)
        self._observers.request_finished(request, reason)

    # -------------------------------------------------------------- a step

    def step(self) -> list[Delta]:
        """Compute one plan and return what it brought, in no particular order."""
        self._draft()
        started = self.clock()
        plan, dropped = self.scheduler.plan(started)
        deltas = [self._give_up(drop, started) for drop in dropped]
        if not plan:
            return deltas
        logits = self.runner.run(plan)
        self._record(plan)
        for decoding, requests in self._ready(logits).items():
            deltas += self._decide(decoding, requests, logits)
        if self._observers.of_steps:
            self._observers.step_finished(self._step_record(plan, started))
        return deltas

    def _give_up(self, drop: Drop, now: float) -> Delta:
        request = unveil(drop.request)
        self._close(request, "error", now)
        return Delta(request_id=request.id, finish_reason="error", error=drop.reason, error_kind="timeout")

    def _step_record(self, plan: Plan, started: float) -> StepRecord:
        return StepRecord(
            number=self._steps,
            started=started,
            ended=self.clock(),
            tokens=plan.tokens,
            sequences=len(plan.chunks),
            running=self._queues.running_count,
            waiting=self._queues.waiting_count,
            kv_free=self._kv.free,
        )

    def _draft(self) -> None:
        """Let the strategies guess ahead for sequences that are about to get logits."""
        for decoding, requests in _by_decoding(r for r in self._queues.running if r.level).items():
            sequences = [sequence for request in requests for sequence in request.live]
            try:
                for sequence, guesses in decoding.draft(sequences):
                    sequence.draft = guesses[: sequence.room - 1]
            except Exception as error:  # costs the guesses, no more
                self._complain(decoding, error)

    def _record(self, plan: Plan) -> None:
        self._steps += 1
        self._computed_tokens += plan.tokens
        for chunk in plan.chunks:
            guesses = max(0, chunk.rows - 1)  # their KV is final only once accepted
            chunk.sequence.computed = chunk.end - guesses
            if not chunk.rows:
                self._kv.commit(chunk.sequence, chunk.end)

    def _ready(self, logits: Logits) -> dict[Decoding, list[Request]]:
        """The requests all of whose sequences have logits, by strategy."""
        fed = dict.fromkeys(sequence.request for sequence in logits.rows)
        return _by_decoding(r for r in fed if all(sequence in logits.rows for sequence in r.live))

    def _decide(self, decoding: Decoding, requests: list[Request], logits: Logits) -> list[Delta]:
        decisions: dict[Request, list[Continuation]] = {request: [] for request in requests}
        try:
            for continuation in decoding.decide(requests, logits):
                decisions[continuation.parent.request].append(continuation)
        except Exception as error:
            # A strategy's fault ends the requests it was serving; all others go on.
            message = self._complain(decoding, error)
            return [delta for request in requests for delta in self._fail(request, message)]
        now = self.clock()
        return [
            delta for request, chosen in decisions.items() for delta in self._advance(request, chosen, now)
        ]

    def _complain(self, decoding: Decoding, error: Exception) -> str:
        """Name a strategy's fault; in the log once for each strategy and kind of error."""
        name = type(decoding).__name__
        message = f"decoding strategy {name} failed: {error or type(error).__name__}"
        if (name, type(error)) not in self._complaints:
            self._complaints.add((name, type(error)))
            logger.error(message, exc_info=error)
        return message

    def _fail(self, request: Request, message: str) -> list[Delta]:
        deltas = [
            Delta(
                request_id=request.id,
                index=s.index,
                finish_reason="error",
                error=message,
                error_kind="internal",
            )
            for s in request.live
        ]
        self._retire(request, request.live, "error", self.clock())
        return deltas

    # -------------------------------------------------------------- applying decisions

    def _advance(self, request: Request, chosen: list[Continuation], now: float) -> list[Delta]:
        """Continue, fork and drop the sequences of a request, and say what that brought."""
        if not chosen:
            strategy = type(request.decoding).__name__
            return self._fail(request, f"decoding strategy {strategy} gave no continuation")
        children = self._descend(request, chosen)
        deltas, ended, produced = list[Delta](), list[TokenSequence](), 0
        for child, continuation in children:
            before = len(child.tokens)
            delta = _extend(child, continuation)
            produced += len(child.tokens) - before
            self._kv.commit(child, child.computed)
            if delta.finish_reason:
                ended.append(child)
            if delta.finish_reason or delta.tokens:
                deltas.append(delta)
        self._count(request, produced, now)
        if ended:
            reason = deltas[-1].finish_reason or ""
            self._retire(request, ended, reason, now)
            if not request.live and request.spec.timing:
                deltas[-1] = msgspec.structs.replace(deltas[-1], timing=request.timing)
        return deltas

    def _count(self, request: Request, produced: int, now: float) -> None:
        self._output_tokens += produced
        request.output_tokens += produced
        if request.timing.first_token is None:
            request.timing.first_token = now
        self.scheduler.observe(request, produced, now)

    def _descend(
        self, request: Request, chosen: list[Continuation]
    ) -> list[tuple[TokenSequence, Continuation]]:
        """Who continues whom: the first named stays in place, further ones fork, the unnamed go."""
        before = request.live
        for parent in dict.fromkeys(continuation.parent for continuation in chosen):
            # The accepted drafts' KV is right already: n new tokens were n - 1 guesses and one more.
            parent.computed += max(len(c.tokens) for c in chosen if c.parent is parent) - 1
        children, seen = [], set[TokenSequence]()
        for continuation in chosen:
            parent = continuation.parent
            children.append((self._fork(parent) if parent in seen else parent, continuation))
            seen.add(parent)
        self._kv.release([sequence for sequence in before if sequence not in seen])
        request.live = tuple(child for child, _ in children)
        return children

    def _fork(self, parent: TokenSequence) -> TokenSequence:
        child = parent.fork()
        self._kv.fork(parent, child)
        return child


def _extend(sequence: TokenSequence, continuation: Continuation) -> Delta:
    """Append what was decided, cut at the first stop, and say so."""
    request = sequence.request
    tokens, reason = _cut(continuation.tokens, request.stop_ids, sequence.room)
    sequence.tokens += tokens
    sequence.computed = min(sequence.computed, len(sequence.tokens))
    sequence.draft = []
    sequence.logprob += continuation.logprob
    if continuation.details is not None:
        sequence.details += continuation.details[: len(tokens)]
    shown = len(tokens) if request.decoding.streams else len(sequence.output) if reason else 0
    return Delta(
        request_id=request.id,
        index=sequence.index,
        tokens=sequence.tokens[len(sequence.tokens) - shown :],
        logprobs=sequence.details[len(sequence.details) - shown :]
        if request.params.logprobs is not None
        else None,
        finish_reason=reason,
        stop_token=tokens[-1] if reason == "stop" else None,
        cached_tokens=request.cached_tokens,
    )


def _cut(tokens: list[int], stops: frozenset[int], room: int) -> tuple[list[int], str | None]:
    """The tokens up to the first stop or the limit, and which of the two ended them."""
    for count, token in enumerate(tokens[:room], 1):
        if token in stops:
            return tokens[:count], "stop"
    return tokens[:room], "length" if len(tokens) >= room else None


def _by_decoding(requests: Iterable[Request]) -> dict[Decoding, list[Request]]:
    groups: dict[Decoding, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.decoding, []).append(request)
    return groups
