"""The options of `serve` that choose an engine, for commands that run one without a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from turnout.cli.config_file import build_configs
from turnout.cli.options import config_options
from turnout.core.config import EngineConfig

__all__ = ["engine_options", "offline_config"]

Function = TypeVar("Function", bound=Callable[..., Any])


def engine_options(function: Function) -> Function:
    """Adds MODEL, ``--config`` and a flag for each field of `EngineConfig`."""
    decorators = (
        click.argument("positional_model", metavar="[MODEL]", required=False),
        click.option(
            "--config",
            "config_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="YAML file whose keys are these options' names, as of `serve`; flags override it.",
        ),
        config_options(EngineConfig),
    )
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def offline_config(flags: Mapping[str, Any]) -> EngineConfig:
    """From what `engine_options` added. Raises ConfigError, or UsageError for a model that is given twice."""
    given = {name: value for name, value in flags.items() if value is not None}
    file, model = given.pop("config_file", None), given.pop("positional_model", None)
    if model is not None:
        if "model" in given:
            raise click.UsageError(f"the model is given twice: {model} and --model {given['model']}")
        given["model"] = model
    # Nobody else is waiting: no request is turned away.
    return build_configs(file, {"max_waiting": sys.maxsize, **given})[0]
