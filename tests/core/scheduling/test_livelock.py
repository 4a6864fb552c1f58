"""Livelock, when requests evict each other without progress: what counts as progress."""

from __future__ import annotations

import pytest
from toy import ToyGreedy, toy_request

from turnout.core.scheduling.livelock import LivelockDetector
from turnout.core.types.plan import Chunk
from turnout.core.types.request import Request

PROMPT = list(range(1, 11))


@pytest.fixture
def request_() -> Request:
    """That has computed six of its ten tokens."""
    found = Request(toy_request("r", PROMPT, "greedy", 5), ToyGreedy(), 0.0, 15, frozenset())
    found.live[0].computed = 6
    return found


def evict(livelock: LivelockDetector, request: Request) -> None:
    livelock.note_eviction(request)
    request.live[0].computed = 0


def compute(livelock: LivelockDetector, request: Request, upto: int) -> None:
    (sequence,) = request.live
    livelock.note_step(
        {request: [Chunk(sequence, sequence.computed, sequence.tokens[sequence.computed : upto], 0)]}
    )
    sequence.computed = upto


def test_a_position_that_was_never_computed_is_progress(request_: Request) -> None:
    livelock = LivelockDetector()
    evict(livelock, request_)
    assert livelock.evictions == 1
    compute(livelock, request_, 7)
    assert livelock.evictions == 0


def test_so_is_catching_up_with_what_an_eviction_cost_but_once(request_: Request) -> None:
    """Three positions and three more; then it is evicted again, and so on for ever."""
    livelock = LivelockDetector()
    for evictions in (0, 1, 2):
        evict(livelock, request_)
        compute(livelock, request_, 3)
        compute(livelock, request_, 6)
        assert livelock.evictions == evictions
    compute(livelock, request_, 7)
    assert livelock.evictions == 0


def test_what_was_caught_up_before_progress_counts_anew(request_: Request) -> None:
    livelock = LivelockDetector()
    evict(livelock, request_)
    compute(livelock, request_, 6)
    compute(livelock, request_, 7)
    evict(livelock, request_)
    compute(livelock, request_, 3)
    assert livelock.evictions == 0


def test_who_ended_is_forgotten(request_: Request) -> None:
    livelock = LivelockDetector()
    evict(livelock, request_)
    compute(livelock, request_, 6)
    livelock.forget(request_)
    evict(livelock, request_)
    compute(livelock, request_, 3)
    assert livelock.evictions == 0
