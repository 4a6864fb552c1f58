"""Random workloads: whatever the policy, memory, chunking and preemption, outputs are brute force's."""

from __future__ import annotations

from operator import attrgetter

import pytest
from one_in import one_in
from random_serving import POLICIES, served


@pytest.mark.parametrize("policy", one_in(2, POLICIES, attrgetter("__name__")))
def test_outputs_equal_brute_force_and_memory_returns_to_zero(policy):
    stats = [engine.stats() for engine in served(policy, 120)]
    assert sum(each.preemptions for each in stats) > 5, "the workloads must exercise preemption"
    assert sum(each.swap_outs for each in stats) > 0, "and swapping"
