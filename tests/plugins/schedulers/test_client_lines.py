"""Lines of clients, kept from step to step, give the order that charging request by request gives."""

from __future__ import annotations

import random

import pytest
from test_ranked_queue import Steps

from turnout.plugins.schedulers.client_lines import ClientLines


def price(request):
    return float(request.rank)


def by_charging(waiting, counters):
    """As the definition says: the client with the least counter is next, and is charged."""
    heads, turns = dict(counters), {}
    for request in waiting:
        turns[request] = heads[request.client]
        heads[request.client] += price(request)
    return sorted(waiting, key=turns.__getitem__)


@pytest.mark.parametrize("seed", range(30))
def test_the_order_is_as_charged_one_by_one(seed):
    rng, lines, waiting = random.Random(seed), ClientLines(), ()
    steps = Steps(rng)
    for _ in range(50):
        before, view = waiting, steps.next_view()
        waiting = view.waiting
        for request in waiting:
            request.client = getattr(request, "client", None) or f"client{rng.randrange(5)}"
        told = []
        lines.update(view, told.extend, price)
        assert set(told) >= set(waiting).difference(before)  # and those that left and came back
        counters = {client: float(rng.randrange(9)) for client in lines.by_client}
        order = by_charging(waiting, counters)
        assert list(lines.by_counter(counters)) == order
        assert lines.last(counters) == (order[-1].client if order else "")
        assert set(lines.jobs) == set(waiting)
