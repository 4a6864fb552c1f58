"""Our own routers pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.core.registry.registry import Registry
from turnout.testing import RouterSuite


@pytest.mark.parametrize("name", Registry.load().names("router"))
class TestRouter(RouterSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
