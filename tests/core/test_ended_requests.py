"""Requests that have ended leave memory at once, with their prompts: no circle keeps them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from toy import toy_engine, toy_kv, toy_request

from turnout.core.engine.engine import Engine
from turnout.core.types.request import Request
from turnout.plugins.schedulers.fcfs import Fcfs


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """It would find circles, some time."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_memory() -> set[str]:
    return {each.id for each in gc.get_objects() if isinstance(each, Request)}


def engine() -> Engine:
    return toy_engine(Fcfs(), toy_kv(64, 4))


@pytest.mark.parametrize(("strategy", "n"), [("greedy", 1), ("parallel", 2), ("beam", 2)])
def test_those_that_came_to_their_end(strategy: str, n: int) -> None:
    served, names = engine(), {f"served {number}" for number in range(4)}
    for name in sorted(names):
        served.add(toy_request(name, [1, 2, 3], strategy, 6, n=n))
    assert names <= in_memory()
    while served.busy:
        served.step()
    assert not names & in_memory()


def test_one_that_was_aborted() -> None:
    """Once the engine takes another step: until then it has the plan of the last one."""
    served = engine()
    for name in ("left", "stays"):
        served.add(toy_request(name, [1, 2, 3], "greedy", 60))
    served.step()
    served.abort("left")
    served.step()
    assert in_memory() & {"left", "stays"} == {"stays"}
