"""Our own proposers pass the suite that strangers' do."""

from __future__ import annotations

import pytest

from turnout.testing import ProposerSuite


@pytest.mark.parametrize("name", ["ngram", "ngram:shortest=1,longest=2"])
class TestProposer(ProposerSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
