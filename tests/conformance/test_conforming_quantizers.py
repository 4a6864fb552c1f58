"""Our own quantizers pass the suite that strangers' do."""

from __future__ import annotations

import pytest

from turnout.core.plugins import Registry
from turnout.testing import QuantizerSuite

READERS = {"awq", "compressed-tensors", "gptq"}
"""Of checkpoints that were quantized beforehand: they convert nothing."""
ERRORS = {"int4wo": 0.12}
"""Of outputs, where it is more than the suite's 0.05."""


@pytest.mark.parametrize("name", sorted({*Registry.load().names("quantization")} - READERS))
class TestQuantizer(QuantizerSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
        self.error = ERRORS.get(name, QuantizerSuite.error)  # type: ignore[misc]
