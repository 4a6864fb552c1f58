"""``turnout serve NAME=MODEL …``, and `models` in a config file: several models behind one server."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnout.cli.options.config_file import MODELS, read_models
from turnout.config import EngineConfig, ModelConfig, ModelOptions, ServerConfig
from turnout.config.models import shared_out
from turnout.core.errors import ConfigError, naming

__all__ = ["FIELDS", "models_of", "split_models"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FIELDS = {**EngineConfig.model_fields, **ModelOptions.model_fields}
"""What a section may say."""
OF_ONE = {
    "served_model_name": "give served-model-name in a model's section of the config file",
    "ab": "a live test compares two configurations of one model",
    "replica": "give replica in a model's section of the config file",
}
"""Options of the server that one model alone can have."""


def split_models(arguments: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """Splits the arguments of `serve` into a model without a name and models by name. Raises ConfigError."""
    if len(arguments) == 1 and ("=" not in arguments[0] or os.path.exists(arguments[0])):
        return arguments[0], {}
    named: dict[str, str] = {}
    for argument in arguments:
        name, found, model = argument.partition("=")
        if not found or not model:
            raise ConfigError(
                f"{argument!r}: expected NAME=MODEL, since several models are served by their names; one "
                "MODEL may stand alone"
            )
        if name in named:
            raise ConfigError(
                f"two models are called {name!r}: {named[name]} and {model}; give each its name"
            )
        named[name] = model
    return None, named


def models_of(
    named: Mapping[str, str], file: Path | None, engine: EngineConfig, server: ServerConfig
) -> list[ModelConfig]:
    """The models by name, of the command line and of the file; none: one model is served.

    `engine` and `server` are what the models have in common. Raises ConfigError.
    """
    sections = read_models(file, FIELDS) if file is not None else {}
    for name in named:
        if name in sections:
            raise ConfigError(f"two models are called {name!r}: on the command line, and in {file}")
    sections = {**{name: {"model": model} for name, model in named.items()}, **sections}
    if not sections:
        return []
    if "model" in engine.model_fields_set:
        raise ConfigError(
            f"the model is given as {engine.model} and as {', '.join(sections)}; give it a name, too"
        )
    for option, advice in OF_ONE.items():
        if getattr(server, option):
            flag = option.replace("_", "-")
            raise ConfigError(f"--{flag} is for one model, and {', '.join(sections)} are served; {advice}")
    models = [_model(name, section, engine, server) for name, section in sections.items()]
    _check_names(models)
    return shared_out(models, engine.memory_share)


def _model(name: str, section: Mapping[str, Any], engine: EngineConfig, server: ServerConfig) -> ModelConfig:
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a model's name: expected at most 64 letters, digits, '.', '_' and '-', the "
            "first a letter or digit; other names may be given as served-model-name"
        )
    if not section.get("model"):
        raise ConfigError(f"{MODELS}: {name}: no model is given; add 'model: FOLDER', or a hub name")
    own = {key: value for key, value in section.items() if key in EngineConfig.model_fields}
    options = {key: value for key, value in section.items() if key in ModelOptions.model_fields}
    common = {key: getattr(engine, key) for key in engine.model_fields_set}
    with naming(MODELS, name):
        given = ModelOptions(**options)
        configured = EngineConfig(**{**common, **own})
    update = {key: getattr(given, key) for key in given.model_fields_set & ServerConfig.model_fields.keys()}
    update.pop("served_model_name", None)
    served = server.model_copy(update=update)
    return ModelConfig(name, configured, served, given.served_model_name, given.pin, frozenset(own))


def _check_names(models: Sequence[ModelConfig]) -> None:
    counts = Counter(name for model in models for name in dict.fromkeys(model.names))
    for name, count in counts.items():
        if count > 1:
            having = " and ".join(model.name for model in models if name in model.names)
            raise ConfigError(f"two models are called {name!r}: {having}; give each its own names")
