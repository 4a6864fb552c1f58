"""Requests put aside go on running, and nobody sees them."""

from __future__ import annotations

from toy import toy_request

from turnout.core.scheduling.queues import Queues
from turnout.core.types.request import Request
from turnout.plugins.decoding.greedy import Greedy


def admitted(queues: Queues, *names: str) -> list[Request]:
    requests = []
    for name in names:
        spec = toy_request(name, [1, 2], "greedy", 5)
        request = Request(spec, Greedy(), 0.0, 7, frozenset())
        queues.arrive(request)
        queues.admit(request)
        requests.append(request)
    return requests


def test_they_count_and_take_their_slots() -> None:
    queues = Queues()
    a, b, c = admitted(queues, "a", "b", "c")
    queues.put_aside([a, c])
    assert queues.running == (b,)
    assert [view.id for view in queues.running_views] == ["b"]
    assert (queues.aside, queues.running_count, queues.running_width) == (2, 3, 3)


def test_they_come_back_to_their_places() -> None:
    queues = Queues()
    a, b, c, d = admitted(queues, "a", "b", "c", "d")
    queues.put_aside([c, a, d])
    queues.call_back([d, a])
    assert queues.running == (a, b, d)
    queues.call_back([c])
    assert queues.running == (a, b, c, d)
    assert queues.newest is d


def test_there_is_work_while_all_are_aside() -> None:
    queues = Queues()
    (a,) = admitted(queues, "a")
    queues.put_aside([a])
    assert queues and not queues.running
    queues.call_back([a])
    queues.remove(a)
    assert not queues
