"""The limits of a key, on a clock that is set by hand."""

from __future__ import annotations

import math
from contextlib import ExitStack

import pytest

from turnout.server.http.access.key_usage import KeyUsage
from turnout.server.http.errors import ApiError


class Hand:
    """A clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def refused(usage: KeyUsage) -> str:
    """Seconds to wait, as the header says."""
    with pytest.raises(ApiError) as error, usage.request():
        pass
    assert (error.value.status, error.value.code) == (429, "rate_limit_exceeded")
    assert error.value.headers is not None
    return error.value.headers["Retry-After"]


def test_requests_in_flight() -> None:
    usage = KeyUsage(in_flight=2)
    with usage.request(), usage.request():
        assert refused(usage) == "1"
    with usage.request():
        pass


def test_requests_a_minute_come_back_one_by_one() -> None:
    clock = Hand()
    usage = KeyUsage(requests_per_minute=6, clock=clock)
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(usage.request())
    assert refused(usage) == "10"
    clock.now = 9.5
    assert refused(usage) == "1"
    clock.now = 10
    with usage.request():
        pass
    assert refused(usage) == "10"
    clock.now = 1000
    for _ in range(6):
        with usage.request():
            pass
    assert refused(usage) == "10"


def test_tokens_that_were_too_many_are_waited_for() -> None:
    clock = Hand()
    usage = KeyUsage(tokens_per_minute=60, clock=clock)
    with usage.request():
        usage.spend(100)
    assert refused(usage) == "41"
    clock.now = 41
    with usage.request():
        pass


@pytest.mark.parametrize(("limit", "left"), [(8, 5), (6, 3), (4, 1), (3, 0), (1, 0)])
def test_what_was_used_of_a_limit_stays_used_when_it_changes(limit: int, left: int) -> None:
    """A new limit was there whole, however much had just been used."""
    usage = KeyUsage(requests_per_minute=6, clock=Hand())
    for _ in range(3):
        with usage.request():
            pass
    usage.limit(None, limit, None)
    for _ in range(left):
        with usage.request():
            pass
    assert refused(usage) == str(math.ceil(60 / limit))


def test_tokens_that_were_too_many_stay_too_many_when_the_limit_changes() -> None:
    clock = Hand()
    usage = KeyUsage(tokens_per_minute=60, clock=clock)
    with usage.request():
        usage.spend(100)
    usage.limit(None, None, 120)
    with usage.request():
        usage.spend(20)
    usage.limit(None, None, 60)
    assert refused(usage) == "1"
    usage.limit(None, None, 6000)
    with usage.request():
        pass


def test_a_refused_request_costs_nothing() -> None:
    clock = Hand()
    usage = KeyUsage(requests_per_minute=1, tokens_per_minute=60, clock=clock)
    with usage.request():
        usage.spend(120)
    for _ in range(100):
        refused(usage)
    clock.now = 62
    with usage.request():
        pass


def test_a_request_that_can_wait_leaves_room_for_the_tokens_in_flight() -> None:
    clock = Hand()
    usage = KeyUsage(tokens_per_minute=60, in_flight=4, clock=clock)
    assert usage.has_room
    with usage.request():
        assert not usage.has_room, "how many tokens it will have is not known"
        usage.spend(20)
    with usage.request():
        assert usage.has_room
        with usage.request():
            assert not usage.has_room, "40 tokens are left, and 40 are expected"
    assert usage.has_room and usage.refused == 0
    usage = KeyUsage(in_flight=1, requests_per_minute=1, clock=clock)
    with usage.request():
        assert not usage.has_room
    assert not usage.has_room
    clock.now = 60
    assert usage.has_room
