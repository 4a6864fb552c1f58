"""A batch's lines fill what clients leave."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from turnout.server.api.batches.feeder import QUIET_SECONDS, Feeder
from turnout.server.http.load import ServerLoad


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def load(clock: Clock) -> ServerLoad:
    return ServerLoad(clock)


@pytest.fixture
def feeder(load: ServerLoad, clock: Clock) -> Feeder:
    return Feeder(load, 8, clock)


def test_an_idle_server_takes_all_it_may(feeder: Feeder) -> None:
    assert feeder.has_room(0) and feeder.has_room(7) and not feeder.has_room(8)


def test_no_line_begins_while_a_client_waits(feeder: Feeder, load: ServerLoad) -> None:
    with load.request() as begins:
        assert load.waiting == 1 and not feeder.has_room(0)
        begins()
        assert feeder.has_room(0) and not feeder.has_room(1), "one line beside a client that reads"
        with load.request():
            assert load.requests == 2 and not feeder.has_room(0)
        assert load.waiting == 0


def test_only_one_line_is_in_flight_until_it_is_quiet(feeder: Feeder, load: ServerLoad, clock: Clock) -> None:
    with load.request():
        pass
    assert load.waiting == load.requests == 0
    assert feeder.has_room(0) and not feeder.has_room(1)
    clock.now += QUIET_SECONDS
    assert feeder.has_room(7)


def test_a_request_that_fails_waits_no_more(load: ServerLoad) -> None:
    with pytest.raises(ValueError), ExitStack() as stack:
        stack.enter_context(load.request())()
        raise ValueError
    assert load.waiting == load.requests == 0
