"""Our own logits processors pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.core.registry.registry import Registry
from turnout.testing import LogitsProcessorSuite


@pytest.mark.parametrize("name", Registry.load().names("logits_processor"))
class TestLogitsProcessor(LogitsProcessorSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
