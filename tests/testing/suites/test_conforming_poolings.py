"""Our own pooling strategies pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.testing import PoolingSuite


@pytest.mark.parametrize("name", ["cls", "last", "mean", "token", "weighted-mean"])
class TestPooling(PoolingSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
