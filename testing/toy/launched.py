"""A factory of engines for tests of launchers: an engine of the toy model, which is ready at once."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.registry.registry import Registry
from turnout.core.types.messages import Ready
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.toy.engine import toy_engine
from turnout.testing.toy.model import VOCABULARY
from turnout.testing.toy.runner import toy_kv

__all__ = ["FACTORY", "build"]

FACTORY = "turnout.testing.toy.launched:build"
"""As an `EngineOrder` names it."""


@dataclass
class LaunchedToy:
    """As `turnout.runner.assembly.AssembledEngine`."""

    engine: Engine
    ready: Ready
    registry: Registry
    scheduler: str = "fcfs"

    def set_scheduler(self, spec: str) -> str:
        self.engine.scheduler.policy = self.registry.create("scheduler", spec)
        self.scheduler = spec
        return spec


def build(config: EngineConfig) -> LaunchedToy:
    ready = Ready(
        model=config.model,
        max_model_len=256,
        vocab_size=VOCABULARY,
        defaults={},
        kv="paged",
        kv_bytes_per_token=1,
        summary=["a toy"],
    )
    return LaunchedToy(toy_engine(Fcfs(), toy_kv(24, 4)), ready, Registry.of(config))
