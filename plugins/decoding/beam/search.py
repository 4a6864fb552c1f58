"""A step of beam search: rank what could come next, keep the best, set aside what is finished.

All beams of all requests are ranked together, on the device. What is left then is a few candidates for each
request, which are plain numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from turnout.core.engine.logits_processing import adjust
from turnout.core.interfaces.logits_processor import Row
from turnout.core.types.decision import Choice, Completion, Continuation, TokenLogprobs
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.kernels.gpu.staging import to_host_async
from turnout.plugins.decoding.beam.finished import Finished, finished_of
from turnout.sampling.distributions import column
from turnout.sampling.logprobs import TopLogprobs, top_logprobs

__all__ = ["search"]

IMPOSSIBLE = -1e30
"""Totals down here have a token in them that is held back, as stops are before `min_tokens`."""


def search(requests: Sequence[Request], logits: Logits) -> Iterator[Continuation | Completion]:
    """Continue the best beams of each request, or complete it with the best that are finished."""
    for request, candidates in _ranked(requests, logits):
        yield from _step(request, candidates)


class Candidate(NamedTuple):
    """A live sequence and one more token."""

    parent: TokenSequence
    token: int
    total: float
    """What beams are ranked by: cumulative, adjusted as the request wishes; exactly a number of fp32."""
    logprob: float
    """Of the token, by the model itself."""
    details: list[TokenLogprobs] | None
    """Of the token, where the request wants them."""


# ------------------------------------------------------------------ ranking, on the device


class _Shape(NamedTuple):
    """Requests of one shape are ranked as one batch."""

    live: int
    wanted: int
    """Candidates to look at: with so many, `width` are left to go on even if all that can stop do."""


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
    rest = iter(tops())  # from here on the device is waited for, which has been asked for all of it
    for group, best in zip(shapes.values(), ranked, strict=True):
        for request, found in zip(group, best(), strict=True):
            yield request, _candidates(request, found, [next(rest) for _ in request.live])


def _shape(request: Request) -> _Shape:
    return _Shape(len(request.live), request.width * (1 + max(1, len(request.stop_ids))))


class _Found(NamedTuple):
    """What ranking says of one request; lists as long as each other, best first."""

    vocabulary: int
    totals: list[float]
    places: list[int]
    """In [live * vocabulary]."""
    logprobs: list[float]


def _best(shape: _Shape, totals: Tensor, logprobs: Tensor) -> Callable[[], list[_Found]]:
    """The best candidates of each request of a shape; totals, logprobs: [requests * live, vocab_size].

    It is what is returned that waits for the device.
    """
    vocabulary = totals.shape[-1]
    totals, logprobs = (rows.view(-1, shape.live * vocabulary) for rows in (totals, logprobs))
    best = totals.topk(min(shape.wanted, totals.shape[-1]))
    arrivals = [to_host_async(rows) for rows in (best.values, best.indices, logprobs.gather(1, best.indices))]

    def read() -> list[_Found]:
        columns = zip(*(arrival().tolist() for arrival in arrivals), strict=True)
        return [_Found(vocabulary, *lists) for lists in columns]

    return read


def _candidates(request: Request, found: _Found, tops: Sequence[TopLogprobs]) -> list[Candidate]:
    candidates, detailed = [], request.params.logprobs is not None
    for total, place, logprob in zip(found.totals, found.places, found.logprobs, strict=True):
        beam, token = divmod(place, found.vocabulary)
        details = [TokenLogprobs(token, logprob, tops[beam])] if detailed else None
        candidates.append(Candidate(request.live[beam], token, total, logprob, details))
    return candidates


# ------------------------------------------------------------------ deciding, in numbers


def _step(request: Request, candidates: Iterable[Candidate]) -> Iterator[Continuation | Completion]:
    finished = finished_of(request)
    going = _sort(request, candidates, finished)
    length = len(request.live[0].tokens) - len(request.prompt) + 1
    if not going or finished.settled(going[0].total, length):
        yield Completion(request, finished.choices[: request.params.n])
        return
    for parent, token, total, logprob, details in going:
        yield Continuation(parent, [token], logprob, details, total)


def _sort(request: Request, candidates: Iterable[Candidate], finished: Finished) -> list[Candidate]:
    """Those that go on, as many as the search is wide. Those that end, if as good, are set aside."""
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


def _finish(candidate: Candidate, finished: Finished, *, stops: bool) -> None:
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
