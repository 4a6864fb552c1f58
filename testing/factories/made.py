"""Builds requests, views and rows, for tests of what a plugin is for, beside its conformance suite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.interfaces.logits_processor import Row
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.views import KVView, View
from turnout.testing.toy.decodings import ToyParallel

__all__ = ["made_request", "made_row", "made_view"]


def made_request(
    id: str = "r",
    prompt: Sequence[int] = (1, 2, 3),
    output: Sequence[int] = (),
    *,
    arrival: float = 0.0,
    client: str = "",
    priority: int = 0,
    deadline: float | None = None,
    params: SamplingParams | None = None,
) -> Request:
    """A request that has produced `output` so far; where that is empty, none of it has been computed.

    Its `view` is what a scheduling policy sees. deadline: seconds after its arrival.
    """
    spec = RequestSpec(
        id=id,
        prompt=list(prompt),
        params=params or SamplingParams(),
        seed=0,
        priority=priority,
        client=client,
        deadline=deadline,
    )
    request = Request(spec, ToyParallel(), arrival, len(prompt) + (spec.params.max_tokens or 16), frozenset())
    (sequence,) = request.live
    sequence.tokens += output
    sequence.computed = len(sequence.tokens) - 1 if output else 0
    request.output_tokens = len(output)
    return request


def made_view(
    waiting: Iterable[Request] = (),
    running: Iterable[Request] = (),
    *,
    now: float = 0.0,
    free: int = 10_000,
    capacity: int = 100_000,
) -> View:
    """A view in which every request fits, nothing is cached, and outputs get as long as they may."""
    return View(
        now=now,
        running=tuple(request.view for request in running),
        waiting=tuple(request.view for request in waiting),
        kv=KVView(free, capacity),
        fits=lambda request: True,
        cached=lambda request: 0,
        predict=lambda request: float(request.max_tokens),
    )


def made_row(request: Request, draft_tokens: Sequence[int] = ()) -> Row:
    """The row of a request's first choice, behind its output and then `draft_tokens`."""
    return Row(request.live[0], 0, tuple(draft_tokens))
