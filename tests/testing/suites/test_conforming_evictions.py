"""Our own eviction policies pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.core.registry.registry import Registry
from turnout.testing import EvictionPolicySuite


@pytest.mark.parametrize("name", [*Registry.load().names("kv_eviction"), "cost:context=4"])
class TestEvictionPolicy(EvictionPolicySuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
