"""Keys prefer replicas by hashes of names: the same in every process, of few and of many."""

from __future__ import annotations

import pytest

from turnout.core.interfaces.router import MANY, Replica, first_by_rendezvous, rendezvous

KEYS = [b"session %d" % number for number in range(200)]


def replicas(count: int) -> list[Replica]:
    return [Replica(f"replica-{number}", 0, 0) for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, MANY - 1, MANY, 1000])
def test_the_first_is_the_one_that_comes_first(count: int) -> None:
    fleet = replicas(count)
    assert [first_by_rendezvous(key, fleet) for key in KEYS] == [rendezvous(key, fleet)[0] for key in KEYS]


@pytest.mark.parametrize("count", [MANY // 2, 2 * MANY])
def test_keys_of_a_replica_that_leaves_move_and_no_others(count: int) -> None:
    fleet = replicas(count)
    for key in KEYS:
        first, second, *_ = rendezvous(key, fleet)
        others = [each for number, each in enumerate(fleet) if number != first]
        assert others[first_by_rendezvous(key, others)].name == fleet[second].name
