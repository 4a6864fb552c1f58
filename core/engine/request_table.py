"""The request table: all requests that are being served, from arrival until they end."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

import msgspec

from turnout.core.engine.decoding_dispatch import DecodingDispatch
from turnout.core.engine.guarded_admission import GuardedAdmission
from turnout.core.engine.observers import Observers
from turnout.core.errors import RequestError
from turnout.core.interfaces.scheduling import Drop
from turnout.core.plugin_faults import described
from turnout.core.scheduling.scheduler import Scheduler
from turnout.core.types.messages import Delta
from turnout.core.types.pooling import Pooled
from turnout.core.types.request import Request, Timing, Traced, request_of
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["RequestTable"]


class RequestTable:
    """Holds requests by id, and frees their memory and their strategy's state when they end."""

    def __init__(
        self,
        scheduler: Scheduler,
        dispatch: DecodingDispatch,
        observers: Observers,
        admission: GuardedAdmission,
    ) -> None:
        self.output_tokens = 0
        """Output tokens of all requests so far, ended ones included."""
        self._scheduler = scheduler
        self._dispatch = dispatch
        self._observers = observers
        self._admission = admission
        self._requests: dict[str, Request] = {}

    @property
    def ids(self) -> list[str]:
        """Of all requests."""
        return list(self._requests)

    def check_new(self, id: str) -> None:
        if id in self._requests:
            raise RequestError(f"a request with id {id!r} is being served already")

    def arrive(self, request: Request) -> None:
        self._requests[request.id] = request
        self._scheduler.queues.arrive(request)

    def abort(self, request_id: str, index: int | None, now: float) -> Timing | None:
        """Does what `Engine.abort` says."""
        request = self._requests.get(request_id)
        if request is None:
            return None
        gone = [sequence for sequence in request.live if index is None or sequence.index == index]
        request.ended += len(gone)
        if index is not None:
            request.give_up(index)
        self._retire(request, gone, "abort", now)
        return request.timing

    # -------------------------------------------------------------- after a step

    def record_progress(
        self, request: Request, parents: Sequence[TokenSequence], before: int, now: float
    ) -> None:
        """Notes that a request continued from `parents`, with `before` output tokens until then."""
        if parents != request.live:
            dropped = [sequence for sequence in parents if sequence not in request.live]
            self._dispatch.forget(request, dropped)
        request.decisions_left -= 1
        produced = request.output_tokens - before
        self.output_tokens += produced
        if request.timing.first_token is None:
            request.timing.first_token = now
        self._scheduler.observe(request, produced, now)

    def deliver(
        self, request: Request, deltas: list[Delta], ended: list[TokenSequence], now: float
    ) -> list[Delta]:
        """Adds what the first and the last delta tell to `deltas`, and retires the sequences that ended."""
        if ended and (lacking := self._lacking(request, len(request.live) - len(ended))):
            return self.fail(request, lacking, now)
        if deltas and request.first_delta_due:
            deltas[0] = _first(request, deltas[0])
            if request.spec.traced:
                deltas[0] = msgspec.structs.replace(deltas[0], traced=self._traced(request))
        if ended:
            # A strategy that does not stream may have sequences left when all choices have ended.
            ended = list(request.live) if request.ended == request.params.n else ended
            self._retire(request, ended, deltas[-1].finish_reason or "", now)
            if not request.live and (request.spec.timing or request.spec.traced):
                deltas[-1] = self._with_timing(request, deltas[-1])
        return deltas

    def _with_timing(self, request: Request, delta: Delta) -> Delta:
        """The last delta, with what the request asked for."""
        timing = request.timing if request.spec.timing else None
        traced = self._traced(request) if request.spec.traced else None
        return msgspec.structs.replace(delta, timing=timing, traced=traced)

    def _traced(self, request: Request) -> Traced:
        resume = request.spec.resume
        interruptions = 0 if resume is None else len(resume.interrupted)
        timing = copy.deepcopy(request.timing)  # the request goes on, and messages may be read later
        return Traced(timing=timing, replica=self._observers.replica, interruptions=interruptions)

    def _lacking(self, request: Request, live: int) -> str:
        """Returns why the request cannot end with its `n` choices any more; empty if it can."""
        ended, choices = request.ended, request.params.n
        if ended > choices or (not live and request.lacks_choices):
            return self._dispatch.blame(request, f"ended {request!r} with {ended} of n={choices} choices")
        return ""

    def finish(self, request: Request, now: float) -> None:
        """Notes that nothing is left to compute for a request, whose result is in flight."""
        self._scheduler.observe(request, 0, now)  # later, policies would not know it any more
        self._scheduler.queues.finish(request)

    # -------------------------------------------------------------- the end of a request

    def end_pooled(self, request: Request, pooled: Pooled, now: float) -> list[Delta]:
        """Ends a request whose prompt was pooled."""
        request.ended, request.timing.first_token = 1, now
        if request.status != "finishing":
            self._scheduler.observe(request, 0, now)
        self._retire(request, request.live, "stop", now)
        delta = Delta(
            request_id=request.id,
            finish_reason="stop",
            pooled=pooled,
            cached_tokens=request.cached_tokens,
            begun=_begun(request.timing),
        )
        return [self._with_timing(request, delta) if request.spec.timing or request.spec.traced else delta]

    def fail(self, request: Request, fault: str | RequestError, now: float) -> list[Delta]:
        """Ends a request because of a fault of its strategy or of a logits processor, or its own."""
        text = fault if isinstance(fault, str) else described(fault)
        error = Delta(request_id=request.id, finish_reason="error", error=text, error_kind="internal")
        if isinstance(fault, RequestError):
            error = msgspec.structs.replace(error, error_kind="invalid", error_param=fault.param)
        deltas = [msgspec.structs.replace(error, index=sequence.index) for sequence in request.live]
        self._retire(request, request.live, "error", now)
        return deltas

    def drop(self, drop: Drop, now: float) -> Delta:
        """Ends a request that the policy dropped; the scheduler has removed it already."""
        request = request_of(drop.request)
        self._dispatch.forget(request, request.live)
        self._close(request, "error", now)
        return Delta(request_id=request.id, finish_reason="error", error=drop.reason, error_kind="timeout")

    def _retire(self, request: Request, gone: Collection[TokenSequence], reason: str, now: float) -> None:
        """Frees sequences of a request that ended, and closes the request with the last of them."""
        if not gone:
            return
        self._scheduler.kv.release(gone)
        self._scheduler.caught_up.difference_update(gone)
        self._dispatch.forget(request, gone)
        request.live = tuple(sequence for sequence in request.live if sequence not in gone)
        if not request.live:
            self._scheduler.remove(request)
            self._close(request, reason, now)

    def _close(self, request: Request, reason: str, now: float) -> None:
        del self._requests[request.id]
        request.timing.finished = now
        if reason in ("stop", "length") and request.pooling is None:
            self._scheduler.predictions.observe(request.view)
        self._admission.observe(request)
        self._observers.request_finished(request, reason)
        request.close()


def _first(request: Request, delta: Delta) -> Delta:
    """Returns a request's first delta with what only that one tells."""
    request.first_delta_due = False
    scores = request.prompt_scores if request.prompt_scores_due else None
    request.prompt_scores_due = False
    resume = request.spec.resume
    begun = None if resume is not None and resume.choices else _begun(request.timing)  # else told already
    return msgspec.structs.replace(delta, begun=begun, prompt_logprobs=scores)


def _begun(timing: Timing) -> tuple[float, float] | None:
    """Returns how long a request waited, and how long its first token took then."""
    if timing.scheduled is None or timing.first_token is None:
        return None
    return max(0.0, timing.scheduled - timing.arrival), max(0.0, timing.first_token - timing.scheduled)
