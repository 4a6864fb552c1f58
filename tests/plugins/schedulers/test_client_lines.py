"""Lines of clients, kept from step to step, give the order that charging request by request gives."""

from __future__ import annotations

import random

import pytest
from test_ranked_queue import next_step

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
    for _ in range(50):
        before, waiting = waiting, next_step(rng, waiting)
        for request in waiting:
            request.client = getattr(request, "client", None) or f"client{rng.randrange(5)}"
        told = []
        lines.update(waiting, told.extend, price)
        assert told == [request for request in waiting if request not in set(before)]
        counters = {client: float(rng.randrange(9)) for client in lines.by_client}
        order = by_charging(waiting, counters)
        assert list(lines.by_counter(counters)) == order
        assert lines.last(counters) == (order[-1].client if order else "")
        assert set(lines.jobs) == set(waiting)
