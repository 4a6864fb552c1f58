"""A step of beam search: ranks the continuations of all beams, keeps the best and collects finished ones.

The device ranks the beams of all requests together. The few best candidates of each request are then decided
on the host, as plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from turnout.core.engine.logits_processing import adjust
from turnout.core.interfaces.logits_processor import Row
from turnout.core.types.decision import Choice, Completion, Continuation
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.kernels.gpu.staging import to_host_async
from turnout.plugins.decoding.beam.finished import FinishedBeams, finished_beams
from turnout.sampling.distributions import column
from turnout.sampling.logprobs import TopLogprobs, top_logprobs

__all__ = ["search"]

IMPOSSIBLE = -1e30
"""A total below this contains a suppressed token, such as a stop token before `min_tokens`."""


def search(requests: Sequence[Request], logits: Logits) -> Iterator[Continuation | Completion]:
    """Continues the best beams of each request, or completes it with the best finished ones."""
    for request, candidates in _ranked(requests, logits):
        yield from _step(request, candidates)


class Candidate(NamedTuple):
    """A live sequence with one more token."""

    parent: TokenSequence
    token: int
    total: float
    """The sum that beams are ranked by, of adjusted log-probabilities; exactly an fp32 number."""
    logprob: float
    """The token's log-probability, before adjustment."""
    details: list[TokenLogprobs] | None
    """The token's log-probabilities, if the request wants them."""


# ------------------------------------------------------------------ ranking, on the device


class _Shape(NamedTuple):
    """Requests of one shape are ranked as one batch."""

    live: int
    wanted: int
    """Candidates to look at: enough for `width` beams to go on even if all others end with a stop token."""


def _ranked(requests: Sequence[Request], logits: Logits) -> Iterator[tuple[Request, list[Candidate]]]:
    """The candidates of each request, best first."""
    shapes: dict[_Shape, list[Request]] = {}
    for request in requests:
        shapes.setdefault(_shape(request), []).append(request)
    rows = [Row(s, s.index) for group in shapes.values() for request in group for s in request.live]
    logprobs = torch.log_softmax(logits.of(row.sequence for row in rows).float(), dim=-1)
    totals = adjust(logprobs, rows) + column((row.sequence.score for row in rows), logprobs)
    tops = top_logprobs(logprobs, [row.params.logprobs for row in rows])
    counts = [shape.live * len(group) for shape, group in shapes.items()]
    parts = zip(shapes, torch.split(totals, counts), torch.split(logprobs, counts), strict=True)
    ranked = [_best(*part) for part in parts]
    rest = iter(tops())  # the first wait for the device: all of its work is queued
    for group, best in zip(shapes.values(), ranked, strict=True):
        for request, found in zip(group, best(), strict=True):
            yield request, _candidates(request, found, [next(rest) for _ in request.live])


def _shape(request: Request) -> _Shape:
    return _Shape(len(request.live), request.width * (1 + max(1, len(request.stop_ids))))


class _Found(NamedTuple):
    """The best candidates of one request, in parallel lists, best first."""

    vocabulary: int
    totals: list[float]
    indices: list[int]
    """Indices into [live * vocabulary]."""
    logprobs: list[float]


def _best(shape: _Shape, totals: Tensor, logprobs: Tensor) -> Callable[[], list[_Found]]:
    """The best candidates of each request of a shape; totals, logprobs: [requests * live, vocab_size].

    The returned function waits for the device.
    """
    vocabulary = totals.shape[-1]
    totals, logprobs = (rows.view(-1, shape.live * vocabulary) for rows in (totals, logprobs))
    best = totals.topk(min(shape.wanted, totals.shape[-1]))
    found = best.values, best.indices, logprobs.gather(1, best.indices)
    on_host = [to_host_async(rows) for rows in found]

    def read() -> list[_Found]:
        columns = zip(*(rows().tolist() for rows in on_host), strict=True)
        return [_Found(vocabulary, *lists) for lists in columns]

    return read


def _candidates(request: Request, found: _Found, tops: Sequence[TopLogprobs]) -> list[Candidate]:
    candidates, detailed = [], request.params.logprobs is not None
    for total, index, logprob in zip(found.totals, found.indices, found.logprobs, strict=True):
        beam, token = divmod(index, found.vocabulary)
        details = [TokenLogprobs(token, logprob, tops[beam])] if detailed else None
        candidates.append(Candidate(request.live[beam], token, total, logprob, details))
    return candidates


# ------------------------------------------------------------------ deciding, in numbers


def _step(request: Request, candidates: Iterable[Candidate]) -> Iterator[Continuation | Completion]:
    finished = finished_beams(request)
    going = _sort(request, candidates, finished)
    length = len(request.live[0].tokens) - len(request.prompt) + 1
    if not going or finished.settled(going[0].total, length):
        yield Completion(request, finished.choices[: request.params.n])
        return
    for parent, token, total, logprob, details in going:
        yield Continuation(parent, [token], logprob, details, total)


def _sort(request: Request, candidates: Iterable[Candidate], finished: FinishedBeams) -> list[Candidate]:
    """The candidates that go on, as many as the search is wide; adds those that end to `finished`."""
    going: list[Candidate] = []
    last = request.live[0].room == 1
    for rank, candidate in enumerate(candidates):
        if candidate.total < IMPOSSIBLE or len(going) == request.width:
            break
        stops = candidate.token in request.stop_ids
        if not stops and not last:
            going.append(candidate)
        elif rank < request.width:
            _finish(candidate, finished, stops=stops)
    return going


def _finish(candidate: Candidate, finished: FinishedBeams, *, stops: bool) -> None:
    parent, token = candidate.parent, candidate.token
    tokens = [*parent.output, token]
    score = finished.score(candidate.total, len(tokens))
    if finished.admits(score):
        choice = Choice(
            tokens,
            parent.logprob + candidate.logprob,
            "stop" if stops else "length",
            token if stops else None,
            None if candidate.details is None else [*parent.details, *candidate.details],
            score,
        )
        finished.add(score, choice)
