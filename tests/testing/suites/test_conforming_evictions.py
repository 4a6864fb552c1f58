"""Our own eviction policies pass the suite that third parties' do."""

from __future__ import annotations

import pytest
from together import assert_torch_is_not_imported

from turnout.core.registry.registry import Registry
from turnout.testing import EvictionPolicySuite

NAMES = [*Registry.load().names("kv_eviction"), "cost:context=4"]


@pytest.mark.parametrize("name", NAMES)
class TestEvictionPolicy(EvictionPolicySuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]

    @pytest.mark.slow
    def test_importing_it_imports_no_torch(self) -> None:
        super().test_importing_it_imports_no_torch()


def test_importing_them_imports_no_torch() -> None:
    assert_torch_is_not_imported("kv_eviction", NAMES)
