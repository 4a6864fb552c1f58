"""The options by which commands configure an engine: MODEL, ``--config``, and a flag for each field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from turnout.cli.options.config_file import MODELS, build_configs, read_models
from turnout.cli.options.flags import config_options
from turnout.cli.options.several_models import FIELDS, models_of, split_models
from turnout.config import EngineConfig, ModelConfig, ServerConfig
from turnout.config.engine import MAX_COUNT
from turnout.core.errors import ConfigError

__all__ = [
    "config_option",
    "configs_of",
    "engine_options",
    "model_argument",
    "models_argument",
    "offline_config",
    "served_configs",
]

Function = TypeVar("Function", bound=Callable[..., Any])

model_argument = click.argument("positional_model", metavar="[MODEL]", required=False)
models_argument = click.argument("models", metavar="[MODEL | NAME=MODEL ...]", nargs=-1)
config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML file whose keys are options of `serve`; flags override the file.",
)


def engine_options(function: Function) -> Function:
    """Adds MODEL, ``--config`` and a flag for each field of `EngineConfig`."""
    return model_argument(config_option(config_options(EngineConfig)(function)))


def configs_of(flags: Mapping[str, Any]) -> tuple[EngineConfig, ServerConfig]:
    """Builds the configurations from the options that these decorators add; None was not given.

    Raises ConfigError, or UsageError for a model that is given twice.
    """
    file = flags.get("config_file")
    engine, server = _configs(flags, flags.get("positional_model"))
    if file is not None and "model" not in engine.model_fields_set and read_models(file, FIELDS):
        raise ConfigError(f"{file}: {MODELS} is for `turnout serve`; choose one model with --model")
    return engine, server


def served_configs(flags: Mapping[str, Any]) -> tuple[EngineConfig, ServerConfig, list[ModelConfig]]:
    """Builds what `serve` needs: the last has several models by name, or is empty.

    Raises ConfigError, or UsageError for a model that is given twice.
    """
    given = dict(flags)
    model, named = split_models(given.pop("models"))
    engine, server = _configs(given, model)
    return engine, server, models_of(named, flags.get("config_file"), engine, server)


def _configs(flags: Mapping[str, Any], model: str | None) -> tuple[EngineConfig, ServerConfig]:
    given = {name: value for name, value in flags.items() if value is not None}
    file = given.pop("config_file", None)
    given.pop("positional_model", None)
    if model is not None:
        if "model" in given:
            raise click.UsageError(f"the model is given twice: {model} and --model {given['model']}")
        given["model"] = model
    return build_configs(file, given)


def offline_config(flags: Mapping[str, Any]) -> EngineConfig:
    """Builds the configuration of a command that runs an engine without a server."""
    # An offline command has no other clients: it refuses no request.
    most = MAX_COUNT if flags.get("max_waiting") is None else flags["max_waiting"]
    return configs_of({**flags, "max_waiting": most})[0]
