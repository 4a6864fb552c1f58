"""Our own KV backends pass the suite that strangers' do."""

from __future__ import annotations

import pytest

from turnout.testing import KVBackendSuite

BACKENDS = [
    "contiguous",
    "paged",
    "paged:block_size=1",
    "paged:block_size=4",
    "paged:block_size=4,prefix_caching=false",
]


@pytest.mark.parametrize("name", BACKENDS)
class TestKVBackend(KVBackendSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
