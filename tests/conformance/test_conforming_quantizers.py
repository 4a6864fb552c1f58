"""Our own quantizers pass the suite that strangers' do."""

from __future__ import annotations

import pytest

from turnout.core.plugins import Registry
from turnout.testing import QuantizerSuite


@pytest.mark.parametrize("name", Registry.load().names("quantization"))
class TestQuantizer(QuantizerSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
