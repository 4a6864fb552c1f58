"""What becomes of a preempted request's KV memory."""

from __future__ import annotations

import pytest
from toy import toy_kv

from turnout.core.interfaces.kv import KVCache
from turnout.core.scheduling.preemption import Auto, Recompute, Swap, SwapCosts

COSTS = SwapCosts(moved_token=3.0, computed_token=1.0, computed_pair=0.1)
"""Seconds: moving 40 tokens takes as long as computing them again, 120."""


class Swappable:
    """A cache that would copy that many positions."""

    def __init__(self, positions: int) -> None:
        self.swappable = lambda sequences: positions


def test_two_of_them_have_made_up_their_minds() -> None:
    kv: KVCache = toy_kv(4, 4)
    assert not Recompute().swaps_out([], kv)
    assert Swap().swaps_out([], kv)


def test_a_context_costs_its_tokens_and_each_of_them_those_before_it() -> None:
    assert COSTS.swap(40) == COSTS.recompute(40) == 120
    assert COSTS.recompute(80) == 80 + 80 * 80 / 2 * 0.1


@pytest.mark.parametrize(("positions", "swaps_out"), [(0, False), (39, False), (40, False), (41, True)])
def test_what_moves_faster_than_it_is_computed_is_swapped_out(positions: int, swaps_out: bool) -> None:
    assert Auto(COSTS).swaps_out([], Swappable(positions)) is swaps_out  # type: ignore[arg-type]
