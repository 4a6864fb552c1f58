"""Our own length predictors pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.core.registry.registry import Registry
from turnout.testing import LengthPredictorSuite


@pytest.mark.parametrize("name", [*Registry.load().names("length_predictor"), "history:min_samples=1,keys=2"])
class TestLengthPredictor(LengthPredictorSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
