"""An endless stream of favoured requests, more than can be served, delays a victim no longer than claimed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest
from toy import toy_kv
from traces import Machine, Served, job, serve

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.request import RequestSpec
from turnout.plugins.schedulers.ljf import Ljf
from turnout.plugins.schedulers.sjf import Sjf
from turnout.plugins.schedulers.srpt import Srpt

VICTIM_ARRIVES = 5.0
PROMPT, LONG, AGING = 3, 30, 2.0


@dataclass(frozen=True)
class Attack:
    """`rate` requests a second of the favoured length, for ever; among them one victim."""

    policy: type[SchedulingPolicy]
    victim: int
    favoured: int
    rate: int
    bound: float
    """Seconds after the victim's arrival from which on no later request may overtake it."""

    def stream(self) -> Iterator[RequestSpec]:
        for second in count():
            if second == VICTIM_ARRIVES:
                yield job("victim", VICTIM_ARRIVES, PROMPT, self.victim, exact=True)
            for number in range(self.rate):
                yield job(f"{second}.{number}", float(second), PROMPT, self.favoured, exact=True)


ATTACKS = {
    "sjf": Attack(Sjf, LONG, 1, 3, LONG / AGING),
    "ljf": Attack(Ljf, 1, LONG, 1, (LONG - 1) / AGING),
    "srpt": Attack(Srpt, LONG, 1, 3, (PROMPT + LONG) / AGING),
}
MACHINES = {
    "slots": lambda: Machine(slots=2),
    # Room for one at its longest: the victim needs more than the favoured do, or they more than it.
    "memory": lambda: Machine(toy_kv(PROMPT + LONG, 1, prefix_caching=False), slots=2),
}


def arrivals_of_those_admitted_before(served: Served, name: str) -> list[float]:
    """Before it was admitted for the last time."""
    admitted = [other for _, other in served.times("admit")]
    last = len(admitted) - 1 - admitted[::-1].index(name)
    return [served.specs[other].arrival for other in admitted[:last] if other != name]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ATTACKS)
def test_no_request_that_arrives_after_the_bound_overtakes(name, machine):
    attack = ATTACKS[name]
    served = serve(attack.policy(aging=AGING), attack.stream(), MACHINES[machine](), until=900)
    assert "victim" in served.finished, "it starved"
    latest = max(arrivals_of_those_admitted_before(served, "victim"))
    assert latest <= VICTIM_ARRIVES + attack.bound
    assert latest > VICTIM_ARRIVES, "the stream must have overtaken it at first"


@pytest.mark.parametrize("name", ATTACKS)
def test_the_delay_is_the_time_to_serve_those_who_came_within_the_bound(name):
    attack, slots = ATTACKS[name], 2
    served = serve(attack.policy(aging=AGING), attack.stream(), Machine(slots=slots), until=900)
    seconds = VICTIM_ARRIVES + attack.bound + 1
    work = seconds * attack.rate * attack.favoured / slots
    assert served.first_tokens["victim"] <= work + attack.favoured


@pytest.mark.parametrize("name", ATTACKS)
def test_without_aging_the_stream_starves_it(name):
    attack = ATTACKS[name]
    served = serve(attack.policy(aging=0), attack.stream(), Machine(slots=2), until=400)
    assert "victim" not in served.first_tokens


def test_srpt_neither_evicts_nor_lets_memory_grow_at_the_cost_of_one_past_its_bound():
    """The victim runs already when the stream starts to fight it for memory."""
    attack = ATTACKS["srpt"]
    kv = toy_kv(PROMPT + LONG + 4, 1, prefix_caching=False)
    served = serve(Srpt(aging=AGING), attack.stream(), Machine(kv, slots=3), until=900)
    lost = [time for time, name in served.times("preempt") if name == "victim"]
    gained = [n for time in lost for at, n in served.times("admit") if at == time]
    assert all(served.specs[name].arrival <= VICTIM_ARRIVES + attack.bound for name in gained)
    assert "victim" in served.finished
