"""Our own quantizers pass the suite that third parties' do."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from turnout.core.registry.registry import Registry
from turnout.testing import QuantizerSuite

READERS = {"awq", "compressed-tensors", "gguf", "gptq", "mxfp4"}
"""Of checkpoints that were quantized beforehand: they convert nothing."""
ERRORS = {"int4wo": 0.12, "bnb-nf4": 0.12, "bnb-fp4": 0.18}
"""Of outputs, where it is more than the suite's 0.05."""
EXTRA = {"bnb-fp4", "bnb-int8", "bnb-nf4"}
MISSING = set[str]() if find_spec("bitsandbytes") else EXTRA


@pytest.mark.parametrize("name", sorted({*Registry.load().names("quantization")} - READERS - MISSING))
class TestQuantizer(QuantizerSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
        self.error = ERRORS.get(name, QuantizerSuite.error)  # type: ignore[misc]
