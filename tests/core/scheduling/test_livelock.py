"""When requests evict each other and nobody gets on: what counts as getting on."""

from __future__ import annotations

import pytest
from toy import Greedy, toy_request

from turnout.core.scheduling.livelock import Progress
from turnout.core.types.plan import Chunk
from turnout.core.types.request import Request

PROMPT = list(range(1, 11))


@pytest.fixture
def request_() -> Request:
    """That has computed six of its ten tokens."""
    found = Request(toy_request("r", PROMPT, "greedy", 5), Greedy(), 0.0, 15, frozenset())
    found.live[0].computed = 6
    return found


def evict(progress: Progress, request: Request) -> None:
    progress.evict(request)
    request.live[0].computed = 0


def compute(progress: Progress, request: Request, upto: int) -> None:
    (sequence,) = request.live
    progress.grant(
        {request: [Chunk(sequence, sequence.computed, sequence.tokens[sequence.computed : upto], 0)]}
    )
    sequence.computed = upto


def test_a_position_that_was_never_computed_is_progress(request_: Request) -> None:
    progress = Progress()
    evict(progress, request_)
    assert progress.evictions == 1
    compute(progress, request_, 7)
    assert progress.evictions == 0


def test_so_is_catching_up_with_what_an_eviction_cost_but_once(request_: Request) -> None:
    """Three positions and three more; then it is evicted again, and so on for ever."""
    progress = Progress()
    for evictions in (0, 1, 2):
        evict(progress, request_)
        compute(progress, request_, 3)
        compute(progress, request_, 6)
        assert progress.evictions == evictions
    compute(progress, request_, 7)
    assert progress.evictions == 0


def test_what_was_caught_up_before_somebody_got_on_counts_anew(request_: Request) -> None:
    progress = Progress()
    evict(progress, request_)
    compute(progress, request_, 6)
    compute(progress, request_, 7)
    evict(progress, request_)
    compute(progress, request_, 3)
    assert progress.evictions == 0


def test_who_ended_is_forgotten(request_: Request) -> None:
    progress = Progress()
    evict(progress, request_)
    compute(progress, request_, 6)
    progress.forget(request_)
    evict(progress, request_)
    compute(progress, request_, 3)
    assert progress.evictions == 0
