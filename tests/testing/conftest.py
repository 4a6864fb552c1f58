"""Those tests of the suites that are slow are so here, too."""

from turnout.testing.pytest_marks import pytest_collection_modifyitems

__all__ = ["pytest_collection_modifyitems"]
