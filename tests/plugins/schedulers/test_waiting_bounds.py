"""No stream of favoured requests keeps a request waiting beyond the bound that a policy claims."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count, pairwise

from toy import toy_kv
from traces import Machine, job, serve

from turnout.core.types.request import RequestSpec
from turnout.plugins.schedulers.lpm import LongestPrefixMatch
from turnout.plugins.schedulers.mlfq import Mlfq

FOREVER = 1e9


def against(late: RequestSpec, stream: Iterator[RequestSpec]) -> Iterator[RequestSpec]:
    return heapq.merge([late], stream, key=lambda spec: spec.arrival)


# ------------------------------------------------------------------ mlfq

PROMPT, OUTPUT, BUDGET = 20, 24, 4


def served_by_mlfq(starve_limit: float, until: float) -> list[float]:
    """When the tokens came of a long request, against more short ones at the top than a step can hold."""
    short = (job(f"s{i}", i // 2, 2, 3, exact=True) for i in count())
    trace = against(job("long", 0.0, PROMPT, OUTPUT, exact=True), short)
    served = serve(Mlfq(4, 4, starve_limit), trace, Machine(slots=4, budget=BUDGET), until=until)
    return [time for time, name in served.times("tokens") if name == "long"]


def test_mlfq_promotes_who_got_no_token_for_the_starve_limit():
    times = served_by_mlfq(starve_limit=15.0, until=240)
    again = (PROMPT + OUTPUT) // BUDGET + 2  # to compute what an eviction cost
    assert len(times) == OUTPUT
    assert all(later - earlier <= 15 + again for earlier, later in pairwise([0.0, *times]))
    assert max(later - earlier for earlier, later in pairwise(times)) > 15, "it is kept waiting as long"


def test_mlfq_would_starve_the_long_without_it():
    assert served_by_mlfq(starve_limit=FOREVER, until=120) == []


def test_mlfq_forgets_requests_that_are_gone():
    policy = Mlfq(2, 3)
    serve(policy, [job(f"r{i}", i, 1 + i % 9, 4) for i in range(60)])
    assert len(policy._standings) <= 1


# ------------------------------------------------------------------ lpm

OUTPUT_OF_EACH = 4


def admitted_by_lpm(max_wait: float, until: float, max_queue: int = 10_000) -> float | None:
    """When a request without a cached prefix was admitted, against an endless stream with long ones."""
    prefix = [1, 2, 3, 4, 5, 6, 1, 2]
    similar = (job(f"s{i}", i // 2, [*prefix, 1 + i % 6], OUTPUT_OF_EACH, exact=True) for i in count())
    trace = against(job("other", 6.0, [6, 5, 4], 2), similar)
    machine = Machine(toy_kv(2000, 1), slots=2)
    served = serve(LongestPrefixMatch(max_wait, max_queue), trace, machine, until=until)
    return next((time for time, name in served.times("admit") if name == "other"), None)


def test_lpm_admits_next_who_waited_for_max_wait():
    admitted = admitted_by_lpm(max_wait=20.0, until=60)
    # What arrived before it had 12 requests of 4 steps on 2 slots; those are overdue first.
    before = 12 * OUTPUT_OF_EACH / 2
    assert admitted is not None and 6 + 20 < admitted <= 6 + max(20, before) + OUTPUT_OF_EACH + 1


def test_lpm_would_starve_the_dissimilar_without_it():
    assert admitted_by_lpm(max_wait=FOREVER, until=60) is None


def test_lpm_keeps_to_arrival_order_while_the_queue_is_long():
    assert admitted_by_lpm(max_wait=FOREVER, until=60, max_queue=4) is not None
