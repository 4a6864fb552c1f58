"""Runs the conformance suites, and tests that turns are taken by weight."""

from __future__ import annotations

from collections import Counter

import pytest

from turnout.core.errors import ConfigError
from turnout.core.interfaces.router import Replica, Routable
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.registry.registry import Registry
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.testing import RouterSuite, SchedulingPolicySuite
from turnout.testing.toy.engine import drive, toy_engine
from turnout.testing.toy.runner import toy_kv


class TestConformance(SchedulingPolicySuite):
    spec = "weighted-round-robin"
    bound = 60
    fairness = 24


class TestConformanceWithWeights(SchedulingPolicySuite):
    spec = """weighted-round-robin:weights='{"a": 3, "b": 0.5}'"""
    bound = 60


class TestRouterConformance(RouterSuite):
    spec = "weighted-round-robin"


class TestRouterConformanceWithWeights(RouterSuite):
    spec = """weighted-round-robin:weights='{"replica-1": 3, "replica-2": 0.5}'"""


def build(spec: str) -> SchedulingPolicy:
    return Registry.load().create("scheduler", spec)


def first_served(policy: SchedulingPolicy, count: int) -> Counter[str]:
    """Counts by client the first `count` requests to end, of 40 of `gold` followed by 40 of `tin`."""
    params = SamplingParams(max_tokens=4, stop=("greedy",), ignore_eos=True)
    specs = [
        RequestSpec(id=f"{client}-{number}", prompt=[1, 2, 3], params=params, seed=0, client=client)
        for client in ("gold", "tin")
        for number in range(40)
    ]
    engine = toy_engine(policy, toy_kv(64, 4, prefix_caching=False), slots=4, budget=64)
    ended = list(drive(engine, [(0, spec) for spec in specs]).finished)
    return Counter(name.partition("-")[0] for name in ended[:count])


def test_clients_take_turns() -> None:
    assert first_served(build("fcfs"), 40) == {"gold": 40}
    assert first_served(build("weighted-round-robin"), 40) == {"gold": 20, "tin": 20}


def test_weights_are_turns() -> None:
    assert first_served(build("""weighted-round-robin:weights='{"gold": 3}'"""), 40) == {
        "gold": 30,
        "tin": 10,
    }


@pytest.mark.parametrize("weight", [0, -1])
def test_a_weight_that_is_not_positive_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="'tin' must have a weight above 0"):
        build(f"""weighted-round-robin:weights='{{"tin": {weight}}}'""")


def ways(spec: str, count: int, names: str = "abc") -> str:
    """Returns the names of the replicas that `count` requests go to."""
    router = Registry.load().create("router", spec)
    replicas = [Replica(name, 0, 0) for name in names]
    return "".join(names[router.route(Routable(str(i), [1], 5), replicas)] for i in range(count))


def test_replicas_take_turns() -> None:
    assert ways("weighted-round-robin", 6) == "abcabc"


def test_the_turns_of_a_heavy_replica_are_spread() -> None:
    assert ways("""weighted-round-robin:weights='{"a": 5}'""", 14) == "aabacaaaabacaa"


def test_the_others_take_the_turns_of_a_replica_that_leaves() -> None:
    """When the replica returns, it does not catch up on them."""
    router = Registry.load().create("router", "weighted-round-robin")
    both, one = [Replica("a", 0, 0), Replica("b", 0, 0)], [Replica("b", 0, 0)]
    ways = [router.route(Routable("r", [1], 5), replicas) for replicas in (both, one, one, both, both)]
    assert ways == [0, 0, 0, 1, 0]
