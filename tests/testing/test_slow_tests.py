"""Tests of the suites that serve the embedded model run when they are asked for, and only then."""

from __future__ import annotations

from unittest import SkipTest

import pytest

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing import SchedulingPolicySuite
from turnout.testing.suite_runner import SLOW, run_suite
from turnout.testing.suites.suite import Suite, slow

pytest_plugins = ["pytester"]


class Sluggish(Suite[SchedulingPolicy]):
    kind = "scheduler"

    def make(self) -> SchedulingPolicy:
        return Fcfs()

    @slow
    def test_it_is_fast_enough(self) -> None:
        raise AssertionError("too slow")


def test_an_examination_has_them_where_asked_for() -> None:
    def found(slow: bool) -> tuple[str, str]:
        (result,) = [each for each in run_suite(Sluggish(), slow=slow) if each.test == "it is fast enough"]
        return result.state, result.message

    assert found(slow=False) == ("skipped", SLOW)
    assert found(slow=True) == ("failed", "too slow")


def test_what_no_name_leads_to_cannot_be_served() -> None:
    class Made(SchedulingPolicySuite):
        def make(self) -> SchedulingPolicy:
            return Fcfs()

    with pytest.raises(SkipTest, match="an engine looks plugins up by name"):
        Made().test_tokens_of_a_real_model_are_the_same_in_any_order()


SUITE = """
from turnout.testing.suites.suite import Suite, slow

class TestIt(Suite):
    def test_it_is_of_its_kind(self): ...
    test_it_is_offered_under_its_name = test_importing_it_imports_no_torch = test_it_is_of_its_kind

    @slow
    def test_it_is_fast_enough(self): ...
"""


@pytest.mark.parametrize(
    ("asked", "passed", "left_out"),
    [
        ((), 3, 1),
        pytest.param(("-m", "slow"), 1, 3, marks=pytest.mark.slow),
        pytest.param(("-m", ""), 3, 1, marks=pytest.mark.slow),
    ],
)
def test_a_third_partys_pytest_leaves_them_out(
    pytester: pytest.Pytester, asked: tuple[str, ...], passed: int, left_out: int
) -> None:
    pytester.makepyfile(SUITE)
    options = ("-p", "turnout.testing.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers", *asked)
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=passed, deselected=left_out)
