"""Which of several engines a request goes to: the same answer in every process, and few that change."""

from __future__ import annotations

from collections import Counter

import pytest

from turnout.core.errors import ConfigError
from turnout.core.interfaces.router import Replica, Routable, Router, rendezvous
from turnout.core.registry.registry import Registry

REGISTRY = Registry.load()
NAMES = [f"replica-{number}" for number in range(8)]


def router(spec: str) -> Router:
    return REGISTRY.create("router", spec)


def idle(names: list[str] = NAMES) -> list[Replica]:
    return [Replica(name, 0, 0) for name in names]


def loaded(*requests: int) -> list[Replica]:
    return [Replica(f"replica-{number}", count, 100 * count) for number, count in enumerate(requests)]


def request(id: str = "r", prompt: list[int] | None = None, session: str = "", client: str = "") -> Routable:
    return Routable(id, prompt or [1, 2, 3], 10, session, client)


def test_round_robin_goes_round() -> None:
    chosen = router("round-robin")
    assert [chosen.route(request(), idle()) for _ in range(10)] == [*range(8), 0, 1]


def test_round_robin_goes_on_where_one_left() -> None:
    chosen = router("round-robin")
    assert [chosen.route(request(), idle()) for _ in range(7)] == [*range(7)]
    assert [chosen.route(request(), idle(NAMES[:3])) for _ in range(4)] == [1, 2, 0, 1]


def test_least_loaded_counts_requests_or_tokens() -> None:
    replicas = [Replica("a", 2, 500), Replica("b", 3, 100)]
    assert router("least-loaded").route(request(), replicas) == 0
    assert router("least-loaded:by=tokens").route(request(), replicas) == 1


def test_least_loaded_takes_turns_among_equals() -> None:
    chosen = router("least-loaded")
    assert sorted(chosen.route(request(), idle()) for _ in range(8)) == [*range(8)]
    assert chosen.route(request(), loaded(1, 1, 0, 1)) == 2


def test_a_session_stays_where_it_is() -> None:
    chosen = router("session-affinity")
    places = {f"s{n}": chosen.route(request(session=f"s{n}"), idle()) for n in range(200)}
    again = router("session-affinity")
    assert all(again.route(request(id="x", session=s), idle()) == place for s, place in places.items())
    assert max(Counter(places.values()).values()) < 45, "evenly enough"


def test_without_a_session_it_is_the_client_and_then_the_request() -> None:
    chosen = router("session-affinity")
    assert len({chosen.route(request(id=f"{n}", client="alice"), idle()) for n in range(50)}) == 1
    assert len({chosen.route(request(id=f"{n}"), idle()) for n in range(50)}) > 4


def test_prompts_that_start_alike_go_together() -> None:
    chosen = router("prefix-affinity:tokens=16,slack=0")
    common = list(range(16))
    assert len({chosen.route(request(prompt=[*common, n]), idle()) for n in range(50)}) == 1
    assert len({chosen.route(request(prompt=[n, *common]), idle()) for n in range(50)}) > 4


@pytest.mark.parametrize("spec", ["prefix-affinity:slack=1.5", "session-affinity:slack=1.5"])
def test_slack_bounds_how_much_more_than_the_mean_one_gets(spec: str) -> None:
    chosen, counts = router(spec), [0] * 8
    for _ in range(400):
        counts[chosen.route(request(session="all the same"), loaded(*counts))] += 1
    assert max(counts) <= 1.5 * 400 / 8 + 1
    assert chosen.watches and not router(f"{spec.partition(':')[0]}:slack=0").watches


def test_few_move_when_one_leaves() -> None:
    chosen = router("session-affinity")
    sessions = [request(session=f"s{n}") for n in range(300)]
    before = [NAMES[chosen.route(session, idle())] for session in sessions]
    rest = [name for name in NAMES if name != "replica-3"]
    after = [rest[chosen.route(session, idle(rest))] for session in sessions]
    moved = [old for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {"replica-3"}


def test_the_order_is_the_same_in_every_process() -> None:
    """Written down: Python's own hashes differ from one process to the next."""
    assert rendezvous(b"key", idle()) == ORDER


ORDER = [7, 3, 2, 0, 1, 4, 5, 6]


def test_a_single_replica_gets_everything() -> None:
    for name in REGISTRY.names("router"):
        assert router(name).route(request(), loaded(1000)) == 0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("least-loaded:by=mood", "by"),
        ("prefix-affinity:tokens=0", "tokens must be at least 1"),
        ("prefix-affinity:slack=0.5", "slack must be 0, for no bound, or at least 1"),
        ("session-affinity:slack=-1", "slack must be 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        router(spec)
