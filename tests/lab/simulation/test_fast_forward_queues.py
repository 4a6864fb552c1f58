"""Fast-forwarded requests go on running, and are not listed."""

from __future__ import annotations

from toy import toy_request

from turnout.core.types.request import Request
from turnout.lab.simulation.fast_forward_queues import FastForwardQueues
from turnout.plugins.decoding.greedy import Greedy


def admitted(queues: FastForwardQueues, *names: str) -> list[Request]:
    requests = []
    for name in names:
        spec = toy_request(name, [1, 2], "greedy", 5)
        request = Request(spec, Greedy(), 0.0, 7, frozenset())
        queues.arrive(request)
        queues.admit(request)
        requests.append(request)
    return requests


def test_they_count_and_take_their_slots() -> None:
    queues = FastForwardQueues()
    a, b, c = admitted(queues, "a", "b", "c")
    queues.fast_forward([a, c])
    assert queues.running == (b,)
    assert [view.id for view in queues.running_views] == ["b"]
    assert (queues.fast_forwarded, queues.running_count, queues.running_width) == (2, 3, 3)


def test_they_come_back_to_their_places() -> None:
    queues = FastForwardQueues()
    a, b, c, d = admitted(queues, "a", "b", "c", "d")
    queues.fast_forward([c, a, d])
    queues.resume([d, a])
    assert queues.running == (a, b, d)
    queues.resume([c])
    assert queues.running == (a, b, c, d)
    assert queues.newest is d


def test_there_is_work_while_all_are_fast_forwarded() -> None:
    queues = FastForwardQueues()
    (a,) = admitted(queues, "a")
    queues.fast_forward([a])
    assert queues and not queues.running
    queues.resume([a])
    queues.remove(a)
    assert not queues
