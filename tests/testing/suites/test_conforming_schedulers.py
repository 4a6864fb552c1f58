"""Our own scheduling policies pass the suite that third parties' do."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from together import ImportedTogether, assert_hashes_decide_nothing, assert_torch_is_not_imported

from turnout.core.registry.registry import Registry
from turnout.testing import SchedulingPolicySuite
from turnout.testing.checks.plans import plans_of


@dataclass(frozen=True)
class Claims:
    bound: float | None = None
    fairness: float | None = None
    drops: bool = False


ALL = {name: Claims() for name in Registry.load().names("scheduler")} | {
    # Small enough that workloads of a few tokens reach what they limit.
    "deadline": Claims(drops=True),
    "deadline:hopeless=last": Claims(),
    "fcfs": Claims(bound=60),
    "fair": Claims(fairness=40),
    "sjf:aging=2": Claims(bound=100),
    "lpm:max_wait=5,max_queue=3": Claims(),
    "mlfq:quantum=2,levels=3,starve_limit=9": Claims(),
    "sarathi:chunk=1": Claims(),
    "sarathi": Claims(bound=60),
    "static:size=2": Claims(),
}
SLOW = ("deadline:hopeless=last", "ljf", "lpm", "mlfq", "sarathi", "sjf", "static")
"""Of each, another stands for much: with options that reach more, or by the same code."""
PARAMS = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in ALL]


@pytest.mark.parametrize("name", PARAMS)
class TestScheduler(ImportedTogether, SchedulingPolicySuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]
        for claim, value in vars(ALL[name]).items():
            setattr(self, claim, value)

    @pytest.mark.slow
    def test_plans_do_not_depend_on_the_hashes_of_strings(self) -> None:
        super().test_plans_do_not_depend_on_the_hashes_of_strings()


def test_importing_them_imports_no_torch() -> None:
    assert_torch_is_not_imported("scheduler", ALL)


def test_plans_do_not_depend_on_the_hashes_of_strings() -> None:
    assert_hashes_decide_nothing("scheduler", ALL, plans_of)
