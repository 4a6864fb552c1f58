"""Our own routers pass the suite that third parties' do."""

from __future__ import annotations

import pytest
from together import ImportedTogether, assert_hashes_decide_nothing, assert_torch_is_not_imported

from turnout.core.registry.registry import Registry
from turnout.testing import RouterSuite
from turnout.testing.suites.router import ways_of

NAMES = Registry.load().names("router")


@pytest.mark.parametrize("name", NAMES)
class TestRouter(ImportedTogether, RouterSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]

    @pytest.mark.slow
    def test_routes_do_not_depend_on_the_hashes_of_strings(self) -> None:
        super().test_routes_do_not_depend_on_the_hashes_of_strings()


def test_importing_them_imports_no_torch() -> None:
    assert_torch_is_not_imported("router", NAMES)


def test_routes_do_not_depend_on_the_hashes_of_strings() -> None:
    assert_hashes_decide_nothing("router", NAMES, ways_of)
