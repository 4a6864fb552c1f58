"""Which of equally loaded replicas is next, whatever way of finding it is quickest."""

from __future__ import annotations

import random

import pytest

from turnout.core.interfaces.router import Replica
from turnout.plugins.routers.turns import Turns


def replicas_of(loads: list[int]) -> list[Replica]:
    return [Replica(str(number), load, 0) for number, load in enumerate(loads)]


@pytest.mark.parametrize(("count", "highest"), [(1, 3), (8, 2), (64, 1), (64, 40), (300, 3)])
def test_it_is_the_one_chosen_longest_ago(count: int, highest: int) -> None:
    """While replicas come; of those never chosen, the first."""
    rng, turns, chosen = random.Random(count), Turns(), dict[str, int]()
    replicas = replicas_of([rng.randint(0, highest) for _ in range(count)])
    for number in range(1, 1500):
        loads = [replica.requests for replica in replicas]
        equals = [index for index, load in enumerate(loads) if load == min(loads)]
        wanted = min(equals, key=lambda index: (chosen.get(replicas[index].name, 0), index))
        assert turns.idlest(loads, min(loads), replicas) == wanted
        turns.note(replicas[wanted])
        chosen[replicas[wanted].name] = number
        replicas[wanted] = replicas[wanted]._replace(requests=loads[wanted] + 1)
        ending = rng.randrange(len(replicas))
        replicas[ending] = replicas[ending]._replace(requests=max(0, replicas[ending].requests - 1))
        if number % 400 == 0:
            replicas.insert(rng.randrange(len(replicas)), Replica(f"later {number}", rng.randint(0, 1), 0))


def test_replicas_that_left_are_passed_over() -> None:
    turns, replicas = Turns(), replicas_of([0] * 20)
    for replica in replicas:
        turns.note(replica)
    assert turns.idlest([0] * 20, 0, replicas) == 0
    fewer = replicas[5:]
    assert turns.idlest([0] * 15, 0, fewer) == 0, "number 5"


def test_one_in_the_place_of_another_has_its_turn() -> None:
    """At that of the other at the latest."""
    turns, replicas = Turns(), replicas_of([0] * 20)
    for replica in replicas:
        turns.note(replica)
    assert turns.idlest([0] * 20, 0, replicas) == 0
    replicas[2] = Replica("new", 0, 0)
    order = []
    for _ in range(20):
        index = turns.idlest([0] * 20, 0, replicas)
        turns.note(replicas[index])
        order.append(replicas[index].name)
    assert order[:3] == ["0", "1", "new"] and sorted(order) == sorted(replica.name for replica in replicas)
