"""Our own length predictors pass the suite that third parties' do."""

from __future__ import annotations

import pytest
from together import ImportedTogether, assert_torch_is_not_imported

from turnout.core.registry.registry import Registry
from turnout.testing import LengthPredictorSuite

NAMES = [*Registry.load().names("length_predictor"), "history:min_samples=1,keys=2"]


@pytest.mark.parametrize("name", NAMES)
class TestLengthPredictor(ImportedTogether, LengthPredictorSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]


def test_importing_them_imports_no_torch() -> None:
    assert_torch_is_not_imported("length_predictor", NAMES)
