"""Live events as a trace for Perfetto or Chrome: ``ui.perfetto.dev``, ``chrome://tracing``.

Each engine is a process: a thread of steps with its policy's time inside, counters of queues and KV memory,
instants for preemptions and KV copies, and each request as an async track with its phases. The format is
"Trace Event Format" (Chromium, 2016), in its JSON object form; times are microseconds from the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from turnout.core.types.live.event import LiveEngine, LiveEvent
from turnout.core.types.live.news import LiveRequest, SpanNews, StepTrace

__all__ = ["perfetto_trace"]

Entry = dict[str, Any]
STEPS = 1
"""The thread of steps in each process."""


def perfetto_trace(events: Iterable[LiveEvent]) -> dict[str, Any]:
    """The trace of a record, ready to be written as JSON."""
    told = list(events)
    origin = min(_times(told), default=0.0)
    engines: dict[str, _Track] = {}
    entries: list[Entry] = []
    end = origin
    for event in told:
        end = max(end, event.at)
        for engine in event.engines:
            if engine.name not in engines:
                engines[engine.name] = _Track(len(engines) + 1, origin)
                entries += engines[engine.name].head(engine.name)
            entries += engines[engine.name].entries(engine, event.at)
    for track in engines.values():
        entries += track.rest(end)
    names = {"source": "turnout", "epoch_seconds": origin}
    return {"traceEvents": entries, "displayTimeUnit": "ms", "otherData": names}


def _times(events: list[LiveEvent]) -> Iterator[float]:
    for event in events:
        yield event.at
        for engine in event.engines:
            yield from (step.started for step in engine.steps)
            yield from (start for _, _, start, _ in engine.spans)


class _Track:
    """One engine's part of the trace."""

    def __init__(self, process: int, origin: float) -> None:
        self._process, self._origin = process, origin
        self._open: dict[str, SpanNews] = {}
        """The span of each request that has not ended."""
        self._requests: dict[str, LiveRequest] = {}
        self._begun: set[str] = set()
        self._ended: dict[str, float] = {}
        """When the last span of each request ended."""

    def head(self, name: str) -> Iterator[Entry]:
        yield self._entry("M", "process_name", args={"name": f"engine {name}"})
        yield self._entry("M", "thread_name", tid=STEPS, args={"name": "steps"})

    def entries(self, engine: LiveEngine, at: float) -> Iterator[Entry]:
        if engine.began:
            yield from self.rest(at)
        for step in engine.steps:
            yield from self._step(step)
        for request in engine.requests:
            self._requests[request.id] = request
        for span in engine.spans:
            yield from self._span(span)
        for request in engine.requests:
            if request.state == "ended":
                yield from self._end(request, at)

    def rest(self, at: float) -> Iterator[Entry]:
        """Ends the tracks of requests that were not seen to end."""
        for id, (_, phase, start, _) in list(self._open.items()):
            yield self._async("e", id, phase, max(at, start))
            yield self._async("e", id, _title(id), max(at, start))
        self._open, self._begun, self._requests, self._ended = {}, set(), {}, {}

    # -------------------------------------------------------------- details

    def _step(self, step: StepTrace) -> Iterator[Entry]:
        counts = {"tokens": step.tokens, "rows": step.rows}
        decided = {"order": step.order, "grants": step.grants, "admitted": step.admitted, "why": step.why}
        args = counts | {name: value for name, value in decided.items() if value}
        # The difference of what is written: steps that overlap by a rounded nanosecond would be dropped.
        begin, end = _micro(step.started - self._origin), _micro(step.ended - self._origin)
        length = max(0.0, round(end - begin, 3))
        name = f"step {step.number}"
        yield self._entry("X", name, step.started, tid=STEPS, cat="step", dur=length, args=args)
        if step.policy_ms:
            inside = min(step.policy_ms * 1000, length)
            yield self._entry("X", "policy", step.started, tid=STEPS, cat="policy", dur=inside)
        for id, how in step.preempted:
            words = {"request": id, "then": how}
            yield self._entry("i", "preempted", step.started, tid=STEPS, cat="policy", s="t", args=words)
        for way, tokens in step.moved.items():
            args = {"tokens": tokens}
            yield self._entry("i", f"KV {way}", step.started, tid=STEPS, cat="kv", s="t", args=args)
        queue = {"running": step.running, "waiting": step.waiting}
        yield self._entry("C", "requests", step.ended, args=queue)
        yield self._entry("C", "KV free", step.ended, args={"tokens": step.kv_free})

    def _span(self, span: SpanNews) -> Iterator[Entry]:
        id, phase, start, end = span
        opened = self._open.get(id)
        if opened is None or opened[2] != start:
            if id not in self._begun:
                self._begun.add(id)
                yield self._async("b", id, _title(id), start, self._about(id))
            yield self._async("b", id, phase, start)
        if end is None:
            self._open[id] = span
        else:
            self._open.pop(id, None)
            self._ended[id] = end
            yield self._async("e", id, phase, end)

    def _end(self, request: LiveRequest, at: float) -> Iterator[Entry]:
        at = self._ended.pop(request.id, at) if request.id not in self._open else at
        opened = self._open.pop(request.id, None)
        if opened is not None:  # it went on in another engine
            yield self._async("e", request.id, opened[1], max(at, opened[2]))
        if request.id in self._begun:
            self._begun.discard(request.id)
            told = {"finish_reason": request.finish_reason, "output_tokens": request.output_tokens}
            yield self._async("e", request.id, _title(request.id), at, told)
        self._requests.pop(request.id, None)

    def _about(self, id: str) -> Entry:
        request = self._requests.get(id)
        if request is None:
            return {}
        about = {"client": request.client, "prompt_tokens": request.prompt_tokens}
        return about | {"max_tokens": request.max_tokens, "moved_from": request.moved_from}

    def _async(self, phase: str, id: str, name: str, at: float, args: Entry | None = None) -> Entry:
        more: Entry = {"args": args} if args else {}
        return self._entry(phase, name, at, cat="request", id2={"local": id}, **more)

    def _entry(self, phase: str, name: str, at: float | None = None, tid: int = 0, **more: Any) -> Entry:
        time = {} if at is None else {"ts": _micro(at - self._origin)}
        return {"ph": phase, "name": name, "pid": self._process, "tid": tid, **time, **more}


def _title(id: str) -> str:
    return f"request {id}"


def _micro(seconds: float) -> float:
    return round(seconds * 1_000_000, 3)
