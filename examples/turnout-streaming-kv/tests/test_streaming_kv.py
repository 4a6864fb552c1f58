"""Runs the conformance suite with the positions that a query sees; tests that memory stays constant."""

from __future__ import annotations

from turnout.core.interfaces.kv import PoolSize
from turnout.core.registry.registry import Registry
from turnout.plugins.evictions.lru import Lru
from turnout.testing import KVBackendSuite


class Streaming(KVBackendSuite):
    sinks: int
    window: int

    def attends(self, position: int) -> list[int]:
        recent = range(max(0, position - self.window + 1), position + 1)
        return sorted({*range(min(self.sinks, position + 1)), *recent})


class TestSinksAndWindow(Streaming):
    spec, sinks, window = "streaming:sinks=2,window=6", 2, 6


class TestWindowAlone(Streaming):
    spec, sinks, window = "streaming:sinks=0,window=3", 0, 3


class TestWindowThatForgetsNothing(KVBackendSuite):
    """Gives the same tokens as the built-in backends."""

    spec = "streaming:sinks=4,window=60"


def test_a_sequence_of_any_length_takes_a_row() -> None:
    backend = Registry.load().create("kv", "streaming:sinks=4,window=100")
    kv = backend.cache(PoolSize(3 * backend.unit), Lru())
    assert kv.holds(10**6, 3) and not kv.holds(1, 4)
    assert kv.capacity == 3 * (4 + 100 + 32)
