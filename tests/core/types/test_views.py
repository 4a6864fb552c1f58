"""What policies see of a request."""

from __future__ import annotations

import pytest
from toy import ToyGreedy, toy_request

from turnout.core.types.request import Request, RequestSpec, RequestView
from turnout.plugins.schedulers.fcfs import Fcfs

PUBLIC = [name for name in vars(RequestView) if not name.startswith("_")]


def request(**fields: object) -> Request:
    spec = RequestSpec(
        id="r", prompt=[1, 2, 3], params=toy_request("", [1], "greedy", 5).params, seed=0, **fields
    )
    return Request(spec, ToyGreedy(), 10.0, 8, frozenset())


def test_it_shows_what_the_client_asked():
    view = request(client="c", priority=2, deadline=7.0, ttft_deadline=0.5).view
    assert (view.id, view.client, view.priority) == ("r", "c", 2)
    assert (view.arrival, view.deadline, view.ttft_deadline) == (10.0, 17.0, 10.5)
    assert (view.prompt, view.prompt_tokens, view.max_tokens, view.choices) == ((1, 2, 3), 3, 5, 1)
    assert request().view.deadline is request().view.ttft_deadline is None


def test_it_follows_what_becomes_of_the_request():
    served = request()
    assert (served.view.pending, served.view.decoding, served.view.output_tokens) == (3, False, 0)
    served.live[0].computed = 3
    served.live[0].tokens.append(4)
    served.output_tokens = 1
    assert (served.view.pending, served.view.decoding, served.view.output_tokens) == (1, True, 1)
    served.live[0].draft = [5, 6]  # is computed where there is room: nothing that it waits for
    assert served.view.pending == 1


def test_its_history_is_that_of_the_request():
    served = request()
    served.timing.scheduled, served.timing.first_token, served.timing.preempted = 11.0, 12.0, [13.0, 14.0]
    assert (served.view.scheduled, served.view.first_token, served.view.preemptions) == (11.0, 12.0, 2)


def test_by_default_the_newest_admission_gives_way_and_never_to_a_newcomer():
    """As a policy that asks its base class has it; the mechanism knows without asking."""
    oldest, other, newest, newcomer = (request().view for _ in range(4))
    running = (oldest, other, newest)
    assert Fcfs().victim(oldest, running) is Fcfs().victim(newest, running) is newest
    assert Fcfs().victim(newcomer, running) is None


@pytest.mark.parametrize("name", [*PUBLIC, "_request", "anything"])
def test_nothing_of_it_can_be_set_or_deleted(name: str):
    view = request().view
    with pytest.raises(AttributeError, match="read-only"):
        setattr(view, name, 1)
    with pytest.raises(AttributeError, match="read-only"):
        delattr(view, name)
