"""The options by which commands configure an engine: MODEL, ``--config``, and a flag for each field."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from turnout.cli.options.config_file import build_configs
from turnout.cli.options.flags import config_options
from turnout.config import EngineConfig, ServerConfig

__all__ = ["config_option", "configs_of", "engine_options", "model_argument", "offline_config"]

Function = TypeVar("Function", bound=Callable[..., Any])

model_argument = click.argument("positional_model", metavar="[MODEL]", required=False)
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
    given = {name: value for name, value in flags.items() if value is not None}
    file, model = given.pop("config_file", None), given.pop("positional_model", None)
    if model is not None:
        if "model" in given:
            raise click.UsageError(f"the model is given twice: {model} and --model {given['model']}")
        given["model"] = model
    return build_configs(file, given)


def offline_config(flags: Mapping[str, Any]) -> EngineConfig:
    """Builds the configuration of a command that runs an engine without a server."""
    # An offline command has no other clients: it refuses no request.
    most = sys.maxsize if flags.get("max_waiting") is None else flags["max_waiting"]
    return configs_of({**flags, "max_waiting": most})[0]
