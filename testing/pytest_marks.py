"""Gives the marker ``slow`` to the suites' tests that serve the embedded model."""

from __future__ import annotations

import pytest

from turnout.testing.suites.suite import is_slow

__all__ = ["pytest_collection_modifyitems"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests, unless ``-m`` says which tests to run."""
    slow = [item for item in items if is_slow(getattr(item, "function", None))]
    for item in slow:
        item.add_marker("slow")
    if slow and not config.getoption("markexpr"):
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
