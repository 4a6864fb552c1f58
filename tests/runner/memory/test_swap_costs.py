"""The costs that `--preemption auto` decides by, of a machine whose costs are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from turnout.core.interfaces.kv import PoolSize
from turnout.core.scheduling.preemption import SwapCosts
from turnout.core.types.plan import Move, Plan
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.runner.memory import swap_costs
from turnout.runner.memory.swap_costs import measure

TRUE = SwapCosts(moved_token=3e-6, computed_token=2e-4, computed_pair=5e-8)


class Machine:
    """A runner on a clock of its own, slower the first times it does something."""

    def __init__(self, costs: SwapCosts, overhead: float = 0.0, device: str = "cpu", slow: int = 1) -> None:
        self.costs, self.overhead, self.slow = costs, overhead, slow
        self.now = 0.0
        self.longest = 0.0
        self.done = Counter[str]()
        self.device = SimpleNamespace(type=device)

    def run(self, plan: Plan) -> None:
        seconds = self.overhead + self._moving(plan.moves)
        for chunk in plan.chunks:
            tokens = len(chunk.tokens)
            pairs = tokens * chunk.start + tokens * tokens / 2
            seconds += tokens * self.costs.computed_token + pairs * self.costs.computed_pair
        what = str([(chunk.start, len(chunk.tokens)) for chunk in plan.chunks])
        self.now += seconds if self.done[what] >= self.slow else 3 * seconds
        self.longest = max(self.longest, seconds)
        self.done[what] += 1

    def _moving(self, moves: Sequence[Move]) -> float:
        assert [move.way for move in moves] in ([], ["swap_out", "swap_in"])
        return sum(move.length for move in moves) / 2 * self.costs.moved_token


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    def known(machine: Machine, length: int, chunk: int) -> SwapCosts:
        monkeypatch.setattr(swap_costs.time, "perf_counter", lambda: machine.now)
        cache = ContiguousCache(PoolSize(length, length))
        return measure(machine, cache, length, chunk)  # type: ignore[arg-type]

    return known


@pytest.mark.parametrize(("length", "chunk"), [(2048, 512), (2048, 8192), (300, 64), (64, 512), (5, 2)])
def test_costs_are_found(known: Any, length: int, chunk: int) -> None:
    found = known(Machine(TRUE), length, chunk)
    assert found.moved_token == pytest.approx(TRUE.moved_token)
    assert found.computed_token == pytest.approx(TRUE.computed_token)
    assert found.computed_pair == pytest.approx(TRUE.computed_pair)


def test_a_gpu_captures_a_graph_before_it_is_measured(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of a shape compiles, the second captures, the third is what steps will take."""
    monkeypatch.setattr(swap_costs.torch.cuda, "synchronize", lambda device: None)
    found = known(Machine(TRUE, device="cuda", slow=2), 2048, 512)
    assert found.computed_token == pytest.approx(TRUE.computed_token)


@pytest.mark.parametrize("length", [1, 2])
def test_a_context_of_a_token_or_two(known: Any, length: int) -> None:
    found = known(Machine(TRUE), length, 512)
    assert found.computed_token == pytest.approx(TRUE.computed_token, rel=1e-3)


def test_a_slow_machine_is_asked_for_little(known: Any) -> None:
    """The whole must not delay the start by more than a few chunks of the time it has patience for."""
    slow = Machine(SwapCosts(1e-5, computed_token=0.002, computed_pair=0), overhead=0.05)
    found = known(slow, 2048, 8192)
    assert slow.longest < 0.2 and slow.now < 2
    assert found.computed_token == pytest.approx(0.002, rel=1.0), "the step's own 50 ms are part of it"


def test_no_costs_are_below_zero(known: Any) -> None:
    """Where the machine's noise is larger than what is measured."""
    found = known(Machine(SwapCosts(1e-9, 1e-9, -1e-12), overhead=1e-3), 2048, 512)
    assert found.computed_pair == 0 and found.computed_token >= 0
