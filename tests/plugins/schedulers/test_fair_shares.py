"""The `fair` policy keeps the bound of the virtual token counter's paper, and its memory is bounded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from statistics import mean

import msgspec
import pytest
from toy import toy_kv
from traces import Machine, Served, job, serve

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.request import RequestSpec
from turnout.plugins.schedulers.fair import Fair
from turnout.plugins.schedulers.fcfs import Fcfs

INPUT, OUTPUT = 1, 2
PROMPT, TOKENS = 24, 20
"""At most."""
SECONDS = 240


def machine() -> Machine:
    return Machine(toy_kv(40, 4, prefix_caching=False), slots=8, budget=64)


def flood(rates: dict[str, float], *, burst: int = 0) -> Iterator[RequestSpec]:
    """So many requests a second from each client, evenly spread, after a burst; of mixed lengths."""
    rng = random.Random(0)
    sent = dict.fromkeys(rates, 0)
    for second in count():
        for client, rate in rates.items():
            while sent[client] < burst + rate * (second + 1):
                sent[client] += 1
                name = f"{client}{sent[client]}"
                prompt, tokens = rng.randint(1, PROMPT), rng.randint(1, TOKENS)
                yield job(name, float(second), prompt, tokens, exact=True, client=client)


def service(served: Served, client: str) -> list[float]:
    """What a client got, weighted, up to each second."""
    totals, first = [0.0] * served.steps, set[str]()
    for event in served.journal:
        if served.specs[event.id].client != client:
            continue
        if event.kind == "admit" and event.id not in first:
            first.add(event.id)
            totals[int(event.time)] += INPUT * len(served.specs[event.id].prompt)
        totals[int(event.time)] += OUTPUT * event.tokens
    return [sum(totals[: second + 1]) for second in range(served.steps)]


def widest_gap(one: list[float], other: list[float]) -> float:
    """The greatest difference of service over any interval."""
    lead = [0.0, *(a - b for a, b in zip(one, other, strict=True))]
    return max(lead) - min(lead)


def bound() -> float:
    return 2 * max(INPUT * PROMPT, OUTPUT * machine().kv.capacity)


def test_two_backlogged_clients_get_the_same_though_one_sends_ten_times_more():
    rates = {"flood": 5.0, "modest": 0.5}  # a fair share is less than even that
    gaps = {}
    for policy in (Fair(), Fcfs()):
        served = serve(policy, flood(rates, burst=10), machine(), until=SECONDS)
        most, least = service(served, "flood"), service(served, "modest")
        gaps[type(policy).__name__] = gap = widest_gap(most, least)
        print(f"{type(policy).__name__}: {most[-1]:g} and {least[-1]:g}, gap {gap:g}, bound {bound():g}")
    assert gaps["Fair"] <= bound() < gaps["Fcfs"]


def test_service_is_in_proportion_to_the_clients_weights():
    stream = flood({"gold": 1.0, "tin": 1.0}, burst=10)
    served = serve(Fair(weights={"gold": 3.0}), stream, machine(), until=SECONDS)
    gold, tin = service(served, "gold"), service(served, "tin")
    assert widest_gap([total / 3 for total in gold], tin) <= bound()
    assert gold[-1] / tin[-1] == pytest.approx(3, rel=0.1)


def with_visits(stream: Iterator[RequestSpec], every: int) -> Iterator[RequestSpec]:
    """A client with one short request at a time, long between them."""
    visits = 0
    for spec in stream:
        if spec.arrival >= (visits + 1) * every:
            visits += 1
            yield job(f"visit{visits}", spec.arrival, 3, 3, exact=True, client="visitor")
        yield spec


def ttfts(policy: SchedulingPolicy, rate: float) -> list[float]:
    stream = with_visits(flood({"flood": rate, "other": 0.2}), every=20)
    served = serve(policy, stream, machine(), until=SECONDS)
    visits = [name for name in served.specs if name.startswith("visit")]
    return [served.ttft(name) if name in served.first_tokens else SECONDS for name in visits]


def test_a_third_clients_first_token_is_not_delayed_by_the_flood():
    figures = {
        "fair, no flood": ttfts(Fair(), 0),
        "fair, full": ttfts(Fair(), 0.8),
        "fair, flood": ttfts(Fair(), 5),
        "fcfs, flood": ttfts(Fcfs(), 5),
    }
    for name, times in figures.items():
        print(f"{name}: ttft of the visitor {mean(times):.1f} s on average, {max(times):g} s at most")
    # Full slots are waited for, nothing else: one is free when the first running request has finished.
    assert max(figures["fair, flood"]) <= max(figures["fair, no flood"]) + TOKENS
    assert mean(figures["fair, flood"]) <= mean(figures["fair, full"]) + 1
    assert mean(figures["fair, flood"]) < mean(figures["fcfs, flood"]) / 10


def test_idle_time_earns_nothing():
    """One who comes back after the other was served alone gets half from then on, not all until even."""
    alone = SECONDS // 2
    both = flood({"busy": 2.0, "back": 2.0})
    stream = (spec for spec in both if spec.client == "busy" or spec.arrival >= alone)
    served = serve(Fair(), stream, machine(), until=SECONDS)
    busy, back = (
        [total - totals[alone - 1] for total in totals[alone:]]
        for totals in (service(served, "busy"), service(served, "back"))
    )
    assert widest_gap(busy, back) <= bound()


def test_clients_that_are_gone_are_forgotten():
    policy, remembered = Fair(remember=50), list[int]()
    stream = (job(f"r{i}", float(i // 2), 2, 1, exact=True, client=f"client{i}") for i in range(1500))
    served = serve(policy, stream, watch=lambda *_: remembered.append(len(policy._clients.counters)))
    assert len(served.finished) == 1500
    in_the_engine = 2
    assert max(remembered) == 50 + in_the_engine
    assert len(policy._paid) <= in_the_engine and len(policy._lines.jobs) <= in_the_engine


def test_a_client_that_waits_is_never_forgotten():
    """It got much service, long ago. Hundreds come and go meanwhile: none of them has to wait for it."""
    crowd = [job(f"r{i}", float(i // 2), 2, 1, exact=True, client=f"client{i}") for i in range(200)]
    own = [job("first", 0.0, 2, 60, exact=True, client="own"), job("second", 5.0, 2, 1, client="own")]
    served = serve(Fair(remember=0), sorted([*own, *crowd], key=lambda spec: spec.arrival))
    assert served.times("admit")[-1][1] == "second"


# ------------------------------------------------------------------ users of a client


def with_users(stream: Iterator[RequestSpec], users: dict[str, int]) -> Iterator[RequestSpec]:
    """The same requests; those of a client name so many users in turn, 0: a new one each time."""
    for number, spec in enumerate(stream):
        count = users.get(spec.client)
        user = "" if count is None else f"user{number % count if count else number}"
        yield msgspec.structs.replace(spec, user=user)


def test_a_client_gains_nothing_by_naming_a_new_user_each_time() -> None:
    """Users were clients, so a client got as many shares as it had names for itself."""
    stream = with_users(flood({"honest": 2.0, "greedy": 4.0}), {"greedy": 0})
    served = serve(Fair(), stream, machine(), until=SECONDS)
    assert widest_gap(service(served, "honest"), service(served, "greedy")) <= bound()


def few_requests(rng: random.Random) -> Iterator[RequestSpec]:
    """With pauses, so that often none waits."""
    arrival = 0
    for number in range(rng.randrange(4, 14)):
        arrival += rng.choice([0, 0, 1, 3, 8])
        prompt, tokens = rng.randint(1, PROMPT), rng.randint(1, 30)
        yield job(f"r{number}", float(arrival), prompt, tokens, exact=True, client=rng.choice("abc"))


def test_the_users_of_one_client_are_served_as_clients_are() -> None:
    """A user that came back while none waited could start below the one that had left the queue last."""
    for seed in range(130):
        trace = list(few_requests(random.Random(seed)))
        users = [msgspec.structs.replace(spec, client="key", user=spec.client) for spec in trace]
        orders = []
        for specs in (trace, users):
            roomy = Machine(toy_kv(400, 4, prefix_caching=False), slots=3, budget=64)
            orders.append(serve(Fair(), specs, roomy).times("admit"))
        assert orders[0] == orders[1], seed


def test_the_users_of_a_client_have_equal_parts_of_its_share() -> None:
    rates = {"a": 3.0, "b": 1.5, "other": 3.0}
    stream = (
        msgspec.structs.replace(spec, client="key" if spec.client in "ab" else spec.client, user=spec.client)
        for spec in flood(rates)
    )
    served = serve(Fair(), stream, machine(), until=SECONDS)
    users = {spec.user for spec in served.specs.values()}
    assert users == set(rates)
    tokens = dict.fromkeys(users, 0)
    for event in served.journal:
        tokens[served.specs[event.id].user] += event.tokens
    assert 0.7 < tokens["a"] / tokens["b"] < 1.4
    assert 0.8 < (tokens["a"] + tokens["b"]) / tokens["other"] < 1.25


def test_users_that_are_gone_are_forgotten() -> None:
    policy, remembered = Fair(remember=50), list[int]()
    jobs = (
        job(f"r{i}", float(i // 2), 2, 1, exact=True, client=f"client{i % 2}", user=f"user{i}")
        for i in range(1000)
    )
    count = lambda *_: remembered.append(sum(len(users.counters) for users in policy._users.values()))  # noqa: E731
    assert len(serve(policy, jobs, watch=count).finished) == 1000
    assert max(remembered) <= 50 + 2 * 2
