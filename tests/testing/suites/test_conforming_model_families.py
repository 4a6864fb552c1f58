"""Our own model families pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.models.random.shapes import Shape, config_of
from turnout.testing import ModelFamilySuite

SHAPE = Shape(32, 2, 4, 2, 48, 64, max_positions=128, theta=10_000.0, tied=False)
REFUSED = {
    "qwen2": ({"hidden_act": "relu"},),
    "llama": ({"hidden_act": "relu"},),
}


@pytest.mark.parametrize("name", REFUSED)
class TestModelFamily(ModelFamilySuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec, self.config, self.refused = name, config_of(SHAPE, name), REFUSED[name]  # type: ignore[misc]
