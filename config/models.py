"""The configurations of several models behind one server: each has an engine's options of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from turnout.config.engine import EngineConfig
from turnout.config.fields import Config, PluginText, Texts
from turnout.config.model_names import ModelNames
from turnout.config.server import ServerConfig
from turnout.core import limits
from turnout.core.errors import ConfigError

__all__ = ["ModelConfig", "ModelOptions", "engines_at_once", "shared_out"]

ROUNDING = 1e-9


class ModelOptions(Config):
    """What a section of `models` may say besides the options of an engine."""

    served_model_name: ModelNames = Field((), description="Further names that requests may give this model.")
    """A text with commas between names, or a list."""
    replicas: int = Field(
        1, gt=0, le=limits.REPLICAS.whole, description="Engines of this model; default: `--replicas`."
    )
    replica: Texts = Field((), description="Engines of `turnout worker` that serve this model: a list.")
    lazy: bool = Field(False, description="Load it when its first request comes; default: `--lazy`.")
    unload_after: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Idle seconds after which it is unloaded; default: `--unload-after`.",
    )
    pin: bool = Field(False, description="Never unload it, neither idle nor for another model.")
    router: PluginText = Field(
        "least-loaded", description="Policy that chooses among its replicas; default: `--router`."
    )


@dataclass(frozen=True)
class ModelConfig:
    """One of several models that a server serves."""

    name: str
    """By which requests choose it, and responses name it."""
    engine: EngineConfig
    server: ServerConfig
    """The server's configuration, with this model's replicas and router."""
    aliases: tuple[str, ...] = ()
    pin: bool = False
    """It stays loaded."""
    own: frozenset[str] = frozenset()
    """Options that its section gives; the others it shares with all models."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.aliases

    @property
    def on_demand(self) -> bool:
        """A request loads it where it is not loaded."""
        server = self.server
        return server.lazy or server.unload_after is not None or server.max_loaded_models is not None


def shared_out(models: Sequence[ModelConfig], whole: float = 1.0) -> list[ModelConfig]:
    """The models, each with its share of the machine's memory and cores, unless it has its own.

    whole: the share that all have together. Raises ConfigError, with the sums, for shares beyond it.
    """
    given = {model.name: share for model in models if (share := _own_share(model)) is not None}
    lacking = [model.name for model in models if model.name not in given]
    left, others = whole - sum(given.values()), len(lacking)
    most, on_demand = models[0].server.max_loaded_models, any(model.on_demand for model in models)
    if most is not None and most < len(models):
        left = whole / most * others  # as many as are loaded at once have the whole
    elif on_demand and not others:
        left = 0.0  # one makes room for another
    if left < -ROUNDING or (others and left <= ROUNDING):
        sums = " + ".join(f"{name} {share:g}" for name, share in given.items())
        more = f", which leaves nothing for the other {others} ({', '.join(lacking)})" if lacking else ""
        advice = f"; or give {', '.join(lacking)} a memory-share, too" if lacking and on_demand else ""
        raise ConfigError(
            f"models: their shares of the memory are {sums} = {sum(given.values()):g}, of {whole:g}{more}; "
            f"lower a memory-share, or a gpu-memory-utilization that stands in its place{advice}"
        )
    engines, cores = engines_at_once(models), _left_cores(models)
    return [
        _with_share(model, given.get(model.name, left / max(1, others)), engines, cores) for model in models
    ]


def engines_at_once(models: Sequence[ModelConfig]) -> int:
    """The most engines of these models that compute on this machine together."""
    counts = sorted((model.server.replicas for model in models if not model.server.replica), reverse=True)
    return sum(counts[: models[0].server.max_loaded_models])


def _left_cores(models: Sequence[ModelConfig]) -> float | None:
    """The share of the cores of each model that gives none; None: an equal part."""
    given = [model.engine.cpu_share for model in models if model.engine.cpu_share is not None]
    left, others = 1 - sum(given), len(models) - len(given)
    return left / others if given and others and left > ROUNDING else None


def _own_share(model: ModelConfig) -> float | None:
    if "memory_share" in model.own:
        return model.engine.memory_share
    return model.engine.gpu_memory_utilization if "gpu_memory_utilization" in model.own else None


def _with_share(model: ModelConfig, share: float, engines: int, cores: float | None) -> ModelConfig:
    """cores: what is left for a model that gives no share of them; None: an equal part."""
    update: dict[str, object] = {"memory_share": share}
    if "gpu_memory_utilization" in model.own and "memory_share" not in model.own:
        update["gpu_memory_utilization"] = 1.0  # the share says it already
    if model.engine.cpu_share is None and "cpu_engines" not in model.engine.model_fields_set:
        if cores is not None:
            update["cpu_share"] = cores
        elif engines > 1:
            update["cpu_engines"] = engines
    return replace(model, engine=model.engine.model_copy(update=update))
