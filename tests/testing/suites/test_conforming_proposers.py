"""Our own proposers pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.testing import ProposerSuite


@pytest.mark.parametrize("name", ["ngram", "ngram:shortest=1,longest=2"])
class TestProposer(ProposerSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]


class TestDraftModel(ProposerSuite):
    """A smaller toy, which the suite's resources have, runs ahead of the toy that is served."""

    spec = "draft-model:model=turnout-tiny-draft"

    @pytest.fixture(autouse=True)
    def _have_toys_speak_alike(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They have no tokenizers that could be compared."""
        monkeypatch.setattr("turnout.text.vocabulary.vocabulary_difference", lambda one, other: None)
