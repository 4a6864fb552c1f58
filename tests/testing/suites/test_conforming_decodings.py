"""Our own decoding strategies pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.testing import DecodingSuite

SAME_AS = {
    "beam": (),
    "greedy": ("greedy",),
    "sampling": ("sampling",),
    "speculative:ngram=true,adaptive=false": ("greedy", "sampling"),
    "speculative:ngram=true,k=2": ("greedy", "sampling"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "k=2" in name else ()) for name in SAME_AS]
)
class TestDecoding(DecodingSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec, self.same_as = name, SAME_AS[name]  # type: ignore[misc]
