"""A pytest plugin: add ``-p turnout.testing.pytest_plugin`` to the options of your plugin's tests.

pytest then shows the values that the suites' assertions compared, ``--turnout-trials`` sets how many random
workloads they serve, and ``-m slow`` runs the tests that serve the embedded model. There is no ``pytest11``
entry point on purpose: it would load this plugin wherever Turnout is installed, and make pytest rewrite all
of Turnout's modules.
"""

from __future__ import annotations

import os
import pkgutil

import pytest

import turnout.testing

# Before torch is imported: the toy's tensors are too small for several threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# One by one: the package itself is imported already.
_MODULES = (module.name for module in pkgutil.iter_modules(turnout.testing.__path__, "turnout.testing."))
pytest.register_assert_rewrite(*(name for name in _MODULES if name != __name__))

from turnout.testing.pytest_marks import pytest_collection_modifyitems  # noqa: E402

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure", "pytest_runtest_setup"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("turnout").addoption(
        "--turnout-trials",
        type=int,
        default=None,
        metavar="N",
        help="Random workloads, or requests, in each test of a conformance suite.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: serves the embedded model; runs only with -m slow")
    trials = config.getoption("--turnout-trials")
    if trials is not None and trials < 1:
        raise pytest.UsageError(f"--turnout-trials must be at least 1, not {trials}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    from turnout.testing.suites.suite import Suite

    trials = item.config.getoption("--turnout-trials")
    suite = getattr(item, "instance", None)
    if trials is not None and isinstance(suite, Suite):
        suite.trials = trials  # type: ignore[misc]  # of this instance alone
