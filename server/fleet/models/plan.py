"""What a server makes of the configurations of its models: which it starts with, and which may be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from turnout.config import EngineConfig, ModelConfig, ServerConfig
from turnout.core.errors import ConfigError
from turnout.runner.memory.host_memory import free_host_memory
from turnout.server.fleet.models.budget import Budget
from turnout.server.fleet.models.memory import check_given_memory, given_memory
from turnout.server.fleet.models.residence import Stay

__all__ = ["ModelPlan"]


class ModelPlan:
    """Made before any engine is started."""

    def __init__(
        self,
        models: Sequence[ModelConfig],
        folders: Sequence[Path],
        engine: EngineConfig,
        server: ServerConfig,
    ) -> None:
        """engine: what the models have in common. folders: empty for a model whose folder is not known yet.

        Raises ConfigError for options that do not go together, and where a model could never be loaded.
        """
        self.server = server
        self.on_demand = any(model.on_demand for model in models)
        self.budget = (
            Budget(server.max_loaded_models, engine.memory_share) if self.on_demand else Budget.all()
        )
        self.stays = {model.name: _stay(model, folder) for model, folder in zip_longest(models, folders)}
        if self.on_demand:
            _check_options(models)
            self.budget.check(self.stays)
        if folders:
            _check_memory(list(zip(models, folders, strict=True)), on_demand=self.on_demand)
        self.at_start = self._at_start(models)
        """Names of the models that the server starts with."""

    def _at_start(self, models: Sequence[ModelConfig]) -> set[str]:
        """All that are not lazy, as far as there is room, the pinned ones first."""
        chosen: dict[str, Stay] = {}
        for model in sorted(models, key=lambda model: not model.pin):
            more = {**chosen, model.name: self.stays[model.name]}
            if not model.server.lazy and self.budget.lack(more) is None:
                chosen = more
        return set(chosen)


def _stay(model: ModelConfig, folder: Path | None) -> Stay:
    return Stay(
        on_demand=model.on_demand,
        unload_after=model.server.unload_after,
        pinned=model.pin,
        share=model.engine.memory_share,
        host_memory=0 if folder is None else given_memory(model, folder),
        load_seconds=model.server.load_timeout,
    )


def _check_options(models: Sequence[ModelConfig]) -> None:
    flags = "--lazy, --unload-after and --max-loaded-models"
    for model in models:
        if model.on_demand and model.server.ab:
            raise ConfigError(
                f"{flags} do not go with --ab: the engines of a live test start with the server"
            )
        if model.on_demand and model.server.replica:
            raise ConfigError(f"{flags} do not go with --replica: workers have engines of their own")


def _check_memory(models: Sequence[tuple[ModelConfig, Path]], *, on_demand: bool) -> None:
    """Raise ConfigError, with the sums, where models that are loaded together cannot fit into memory."""
    if not on_demand:
        check_given_memory(models, free_host_memory())
        return
    pinned = [each for each in models if each[0].pin]
    for each in models:
        check_given_memory(pinned if each in pinned else [*pinned, each], free_host_memory())
