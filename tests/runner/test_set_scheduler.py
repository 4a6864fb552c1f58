"""An assembled engine changes its scheduling policy by name, from all that is installed beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, UnknownPlugin
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.runner.assembly import AssembledEngine, build_engine

PLUGIN = """
from turnout.core.registry.hookspecs import hookimpl
from turnout.plugins.schedulers.fcfs import Fcfs

class Mine(Fcfs):
    def __init__(self, aging: float = 1.0):
        self.aging = aging

@hookimpl
def register_schedulers(register):
    register("mine", Mine)
"""


@pytest.fixture
def assembled(random_model: Path, tmp_path: Path) -> AssembledEngine:
    (tmp_path / "turnout_plugins.py").write_text(PLUGIN)
    config = EngineConfig(
        model=str(random_model),
        device="cpu",
        max_model_len=64,
        plugins_folder=str(tmp_path),
        scheduler=" mine ",
    )
    return build_engine(config)


def test_the_policy_is_changed_by_name(assembled: AssembledEngine) -> None:
    assert assembled.scheduler == "mine"
    assert assembled.set_scheduler("fcfs") == assembled.scheduler == "fcfs"
    assert type(assembled.engine.scheduler.policy) is Fcfs
    assert assembled.set_scheduler("mine: aging = 2.5") == assembled.scheduler == "mine:aging=2.5"
    assert assembled.engine.scheduler.policy.aging == 2.5  # type: ignore[attr-defined]


def test_what_cannot_be_built_changes_nothing(assembled: AssembledEngine) -> None:
    before = assembled.engine.scheduler.policy
    with pytest.raises(UnknownPlugin, match=r"no scheduler is called 'fcfz'.*did you mean 'fcfs'"):
        assembled.set_scheduler("fcfz")
    with pytest.raises(ConfigError, match="unknown option 'agin'; known: aging"):
        assembled.set_scheduler("mine:agin=2")
    with pytest.raises(ConfigError, match="expected NAME"):
        assembled.set_scheduler("mine:")
    assert assembled.engine.scheduler.policy is before and assembled.scheduler == "mine"
