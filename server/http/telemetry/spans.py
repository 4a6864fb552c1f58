"""The spans of a request, from its record, once it has ended.

::

    POST /v1/chat/completions        the server's, whose parent is the client's, by `traceparent`
    ├── queue                        from its arrival until an engine admits it
    ├── prefill                      until the first token
    │   ├── prefill chunk            one for each step that computed a part
    ├── decode                       until the last token
    ├── preempted, or interrupted    from when it lost its memory, or its engine, until it goes on
    └── resumed                      from then on, in the engine that it goes on in

Names of attributes are those of OpenTelemetry's conventions for HTTP and for generative AI.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from turnout.core.types.request import RequestSpec, Traced
from turnout.server.http.records.record import Answered, RequestRecord

__all__ = ["Span", "spans_of"]

Value = str | bool | int | float | Sequence[str]
OPERATIONS = {
    "/v1/completions": "text_completion",
    "/infill": "text_completion",
    "/api/generate": "text_completion",
    "/v1/embeddings": "embeddings",
    "/api/embed": "embeddings",
    "/api/embeddings": "embeddings",
    "/pooling": "embeddings",
}
"""Those of generative AI that conventions name; others are ``chat`` where they generate."""
FAILED = 500


@dataclass
class Span:
    """A span that has ended. Times are those of the record."""

    name: str
    start: float
    end: float
    attributes: Mapping[str, Value] = field(default_factory=dict)
    children: Sequence[Span] = ()
    error: str = ""
    """Why it failed, as one word."""


def spans_of(record: RequestRecord) -> Span:
    """The server's span, with all below it."""
    answer = record.answer
    attributes: dict[str, Value] = {
        "http.request.method": record.method,
        "url.path": record.path,
        "turnout.request.id": record.id,
    }
    if record.status:
        attributes["http.response.status_code"] = record.status
    if record.key:
        attributes["turnout.key"] = record.key
    if record.model:
        attributes |= _generative(record, answer)
    error = record.ended if record.status >= FAILED or (answer is not None and answer.error) else ""
    if error:
        attributes["error.type"] = error
    children = [] if answer is None else [span for each in _requests(record, answer) for span in each]
    return Span(_name(record), record.arrival, record.finished, attributes, children, error)


def _name(record: RequestRecord) -> str:
    """With the path only where a model serves it: others' paths are as many as clients make up."""
    return f"{record.method} {record.path}" if record.model else record.method


def _generative(record: RequestRecord, answer: Answered | None) -> Iterator[tuple[str, Value]]:
    yield "http.route", record.path
    yield "gen_ai.operation.name", OPERATIONS.get(record.path, "chat")
    yield "gen_ai.provider.name", "turnout"
    yield "gen_ai.request.model", record.model
    yield "gen_ai.response.model", record.model
    if answer is None:
        return
    yield "gen_ai.usage.input_tokens", answer.prompt_tokens
    yield "gen_ai.usage.output_tokens", answer.completion_tokens
    yield "gen_ai.usage.cache_read.input_tokens", answer.cached_tokens
    yield "gen_ai.response.finish_reasons", list(answer.finish_reasons)
    if record.first_token is not None:
        yield "gen_ai.response.time_to_first_chunk", record.first_token
    if answer.requests and answer.requests[0].pooling is None:
        yield from _asked(answer.requests[0])


def _asked(spec: RequestSpec) -> Iterator[tuple[str, Value]]:
    params = spec.params
    yield "gen_ai.request.seed", spec.seed
    yield "gen_ai.request.choice.count", params.n
    yield "gen_ai.request.temperature", params.temperature
    yield "gen_ai.request.top_p", params.top_p
    if params.top_k > 0:
        yield "gen_ai.request.top_k", params.top_k
    if params.max_tokens is not None:
        yield "gen_ai.request.max_tokens", params.max_tokens
    yield "gen_ai.request.frequency_penalty", params.frequency_penalty
    yield "gen_ai.request.presence_penalty", params.presence_penalty
    if spec.session:
        yield "gen_ai.conversation.id", spec.session


def _requests(record: RequestRecord, answer: Answered) -> Iterator[list[Span]]:
    for spec in answer.requests:
        if traced := answer.traces.get(spec.id):
            yield _phases(spec, traced, record)


def _phases(spec: RequestSpec, traced: Sequence[Traced], record: RequestRecord) -> list[Span]:
    """What became of a request to the engine: of one prompt. `traced`: by each engine that served it."""
    first, last = traced[0], traced[-1]
    arrival, end = first.timing.arrival, last.timing.finished or record.finished
    about: dict[str, Value] = {"turnout.request": spec.id, "turnout.replica": first.replica}
    scheduled = first.timing.scheduled
    if scheduled is None:
        return [Span("queue", arrival, end, about)]
    token = last.timing.first_token or first.timing.first_token
    spans = [
        Span("queue", arrival, scheduled, about),
        Span("prefill", scheduled, token or end, about, list(_chunks(first, scheduled, token or end))),
    ]
    if token is not None and spec.pooling is None:
        spans.append(Span("decode", token, end, about))
    gaps = [gap for each in traced for gap in _gaps(each, end)]
    for at, (gap, replica) in enumerate(gaps):
        spans.append(gap)
        until = gaps[at + 1][0].start if at + 1 < len(gaps) else end
        if gap.end < until:
            spans.append(Span("resumed", gap.end, until, {**about, "turnout.replica": replica}))
    return spans


def _chunks(traced: Traced, scheduled: float, token: float) -> Iterator[Span]:
    """The steps that computed the prompt; the last one, which gave the first token, ends with it."""
    steps = traced.timing.chunks
    if not steps:
        return
    ends = [scheduled, *(ended for ended, _ in steps), token]
    computed = [tokens for _, tokens in steps]
    for place, (start, ended) in enumerate(pairwise(ends)):
        known: dict[str, Value] = {"turnout.tokens": computed[place]} if place < len(computed) else {}
        yield Span("prefill chunk", start, max(start, ended), known)


def _gaps(traced: Traced, end: float) -> Iterator[tuple[Span, str]]:
    """The times in which it had no memory, or no engine, and the replica that it goes on in."""
    timing = traced.timing
    for place, (lost, back) in enumerate(zip(timing.preempted, [*timing.resumed, end], strict=False)):
        name = "interrupted" if place < traced.interruptions else "preempted"
        yield Span(name, lost, max(lost, back), {"turnout.replica": traced.replica}), traced.replica
