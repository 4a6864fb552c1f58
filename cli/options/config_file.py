"""``--config file.yaml``: keys are the flags' names; flags override them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from turnout.config import EngineConfig, ServerConfig
from turnout.config.fields import plugin_text
from turnout.core import limits
from turnout.core.errors import ConfigError, did_you_mean, naming
from turnout.core.registry.kinds import KINDS

__all__ = ["MODELS", "build_configs", "read_config_file", "read_models"]

MODELS = "models"
"""The key of a file under which several models have sections."""

_FIELDS = {**EngineConfig.model_fields, **ServerConfig.model_fields}
_PLUGINS = {kind for kind in KINDS if kind in _FIELDS and kind != "model"}
"""Fields that name plugins. (A model is a folder or a hub name, not a plugin.)"""


def build_configs(file: Path | None, flags: Mapping[str, object]) -> tuple[EngineConfig, ServerConfig]:
    """Builds the configurations from a file and flags; None: the flag is not given. Raises ConfigError."""
    given = {name: value for name, value in flags.items() if value is not None}
    if file is None:
        return _configs(given)
    stated = {name: value for name, value in read_config_file(file).items() if name not in given}
    with naming(file):
        _configs(stated)
    return _configs({"plugins_folder": str(file.parent.resolve()), **stated, **given})


def read_config_file(file: Path) -> dict[str, Any]:
    """Returns values by field name; a policy that is a mapping takes the form of its flag."""
    return _by_field(file, {key: value for key, value in _load(file).items() if key != MODELS}, _FIELDS)


def read_models(file: Path, fields: Collection[str]) -> dict[str, dict[str, Any]]:
    """Returns the sections under `models` by name, each with values by field name.

    fields: those that a section may have. A section that is a text names the model. Raises ConfigError.
    """
    sections = _load(file).get(MODELS)
    if sections is None:
        return {}
    if not isinstance(sections, dict) or not sections:
        raise ConfigError(f"{file}: {MODELS}: expected names, each with a model or with options")
    found: dict[str, dict[str, Any]] = {}
    for name, section in sections.items():
        within = {"model": section} if isinstance(section, str) else section
        if not isinstance(within, dict):
            raise ConfigError(
                f"{file}: {MODELS}: {name}: expected a model, or options such as 'model: FOLDER'"
            )
        with naming(f"{file}: {MODELS}"):
            found[str(name)] = _by_field(name, within, fields)
    return found


def _by_field(place: object, content: Mapping[object, Any], fields: Collection[str]) -> dict[str, Any]:
    """Values by field name. Raises ConfigError, naming the place, for an unknown key."""
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name in ServerConfig.model_fields and name not in fields:
            raise ConfigError(
                f"{place}: {str(key)!r} is an option of the server, but not of a model; give it beside "
                f"{MODELS!r}, for all of them"
            )
        if name not in fields:
            known = [field.replace("_", "-") for field in fields]
            hint = did_you_mean(str(key).replace("_", "-"), known)
            raise ConfigError(f"{place}: unknown key {str(key)!r}; known: {', '.join(known)}{hint}")
        if name in values:
            raise ConfigError(f"{place}: {key!r} is given twice, once with '-' and once with '_'")
        if name in _PLUGINS:
            with naming(place, key):
                value = (
                    [plugin_text(each) for each in value] if isinstance(value, list) else plugin_text(value)
                )
        if value is not None:
            values[name] = value
    return values


def _configs(values: Mapping[str, object]) -> tuple[EngineConfig, ServerConfig]:
    engine = {name: values[name] for name in EngineConfig.model_fields if name in values}
    server = {name: values[name] for name in ServerConfig.model_fields if name in values}
    return EngineConfig(**engine), ServerConfig(**server)


def _load(file: Path) -> Mapping[object, object]:
    import yaml  # imported here, so that only commands with a config file wait for it

    from turnout.cli.options.strict_yaml import load_yaml

    try:
        with file.open("rb") as opened:
            text = opened.read(limits.CONFIG_FILE.whole + 1)
        if len(text) > limits.CONFIG_FILE.whole:
            raise ConfigError(f"the config file {file} is larger than {limits.CONFIG_FILE.amount}")
        content = load_yaml(text.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config file {file} cannot be read: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date in month 13; [[[[…
        raise ConfigError(f"the config file {file} is not YAML: {error}") from None
    if content is None:
        return {}
    _check_values(file, content)
    if not isinstance(content, dict):
        raise ConfigError(f"the config file {file} holds no keys; expected lines such as 'max-num-seqs: 64'")
    return content


def _check_values(file: Path, content: object) -> None:
    """Raises ConfigError where aliases repeat each other beyond bounds, or a value is within itself."""
    seen, level = 0, [content]
    while level:
        seen += len(level)
        if seen > limits.CONFIG_VALUES.most:
            raise ConfigError(
                f"the config file {file} has more than {limits.CONFIG_VALUES.amount}, those that aliases "
                "(*name) repeat included"
            )
        within: list[object] = []
        for value in level:
            if isinstance(value, dict):
                within += value.values()
            elif isinstance(value, list):
                within += value
            if seen + len(within) > limits.CONFIG_VALUES.most:
                break
        level = within
