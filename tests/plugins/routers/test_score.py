"""The score of a replica: what it has of a prompt, against how much more it has to do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from turnout.core.errors import ConfigError
from turnout.core.interfaces.router import Replica, Routable
from turnout.plugins.routers.power_of_two import PowerOfTwo
from turnout.plugins.routers.score import Score

PROMPT = list(range(1000))


def replicas(loads: list[int], cached: Mapping[str, int] | None = None) -> list[Replica]:
    found = cached or {}
    return [Replica(str(number), load, 0, find=lambda _: found) for number, load in enumerate(loads)]


def request(number: int = 0, prompt: list[int] = PROMPT) -> Routable:
    return Routable(str(number), prompt, 10)


def test_a_replica_that_has_the_prompt_gets_it() -> None:
    assert Score().route(request(), replicas([3, 3, 3], {"1": 512})) == 1
    assert Score().route(request(), replicas([3, 3, 3], {"1": 256, "2": 512})) == 2


def test_it_gets_no_more_once_it_has_far_more_to_do() -> None:
    everything = {"1": 1000}
    assert Score().route(request(), replicas([4, 5, 4], everything)) == 1
    assert Score().route(request(), replicas([4, 13, 4], everything)) in (0, 2)
    assert Score(weight=2).route(request(), replicas([4, 9, 4], everything)) in (0, 2)
    assert Score(weight=0.1).route(request(), replicas([4, 9, 4], everything)) == 1


def test_a_prompt_that_nobody_has_goes_to_the_least_loaded_in_turn() -> None:
    score = Score()
    prompts = [[number] * 300 for number in range(6)]
    assert [score.route(request(prompt=prompt), replicas([0, 5, 0])) for prompt in prompts] == [0, 2] * 3


def test_prompts_that_come_at_once_go_together_before_any_engine_has_told() -> None:
    score = Score()
    first = score.route(request(0, [*PROMPT[:280], 1]), replicas([0, 0, 0]))
    loads = [0, 0, 0]
    loads[first] = 1
    assert score.route(request(1, [*PROMPT[:280], 2]), replicas([0, 0, 0])) == first
    assert score.route(request(2, [7, *PROMPT]), replicas(loads)) != first


def test_a_weight_must_be_above_0() -> None:
    with pytest.raises(ConfigError, match="weight must be more than 0, not 0"):
        Score(weight=0)


def test_of_two_the_less_loaded_one_is_chosen() -> None:
    chosen = {PowerOfTwo().route(request(number), replicas([9, 9, 0, 9])) for number in range(200)}
    assert chosen == {0, 1, 2, 3}, "each pair comes up"
    wins = [PowerOfTwo().route(request(number), replicas([1, 0])) for number in range(20)]
    assert wins == [1] * 20, "of two, both are looked at"
