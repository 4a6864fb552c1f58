"""Our own admission policies pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.core.registry.registry import Registry
from turnout.testing import AdmissionPolicySuite


@pytest.mark.parametrize("name", [*Registry.load().names("admission"), "queue-time:seconds=0.5"])
class TestAdmissionPolicy(AdmissionPolicySuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
