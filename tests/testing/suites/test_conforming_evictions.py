"""Our own eviction policies pass the suite that third parties' do."""

from __future__ import annotations

import pytest
from together import ImportedTogether, assert_torch_is_not_imported

from turnout.core.registry.registry import Registry
from turnout.testing import EvictionPolicySuite

NAMES = [*Registry.load().names("kv_eviction"), "cost:context=4"]


@pytest.mark.parametrize("name", NAMES)
class TestEvictionPolicy(ImportedTogether, EvictionPolicySuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]


def test_importing_them_imports_no_torch() -> None:
    assert_torch_is_not_imported("kv_eviction", NAMES)
