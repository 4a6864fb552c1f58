"""What the configurations are made of: how a field's text becomes its value, and how a wrong one is told."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from turnout.core.errors import ConfigError
from turnout.core.registry.spec import PluginSpec
from turnout.core.validation import explain_validation_error

__all__ = [
    "Config",
    "JsonObject",
    "Listed",
    "PathText",
    "PluginNames",
    "PluginSpecs",
    "PluginText",
    "Texts",
    "plugin_text",
]


def _path_text(value: object) -> object:
    """An empty path is none: `pathlib` would read it as the working directory."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if text == "":
        raise ValueError("it should be a path, and is empty; leave the option out if there is none")
    return text


def _names(value: object) -> object:
    """Splits ``a,b``, or each text of a list, into names."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    return tuple(name.strip() for text in texts for name in str(text).split(",") if name.strip())


def plugin_text(value: object) -> object:
    """A plugin that is a mapping, as config files and Python may have it, as a flag has it.

    Raises ConfigError for a mapping that names none; leaves all else as it is.
    """
    return str(PluginSpec.from_mapping(value)) if isinstance(value, Mapping) else value


def _spec(value: object) -> object:
    try:
        return plugin_text(value)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _specs(value: object) -> object:
    """A text or a mapping is a list of one: commas separate the options of a spec."""
    specs = [value] if isinstance(value, str | Mapping) else value
    return tuple(map(_spec, specs)) if isinstance(specs, list | tuple) else specs


PathText = Annotated[str, BeforeValidator(_path_text)]
PluginText = Annotated[str, BeforeValidator(_spec)]
PluginSpecs = Annotated[tuple[str, ...], BeforeValidator(_specs)]
PluginNames = Annotated[tuple[str, ...], BeforeValidator(_names)]


def _texts(value: object) -> object:
    """Makes a tuple of one text or of several; a comma does not separate texts."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_texts)]


def _listed(value: object) -> object:
    """Splits as `_names` does, and takes a list in JSON too, as vLLM's flags do."""
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list | tuple) and len(texts) == 1 and str(texts[0]).startswith("["):
        with suppress(ValueError):
            texts = json.loads(str(texts[0]))
    return _names(texts)


Listed = Annotated[tuple[str, ...], BeforeValidator(_listed)]


def _json_object(value: object) -> object:
    """Makes the text of a JSON object, which a config file may have as a mapping, the same each time."""
    try:
        if isinstance(value, str):
            value = json.loads(value)
        if not isinstance(value, dict):
            raise ValueError("such as '{\"key\": 1}'")
        return json.dumps(_with_text_keys(value), sort_keys=True, allow_nan=False, default=_refused)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it should be a JSON object: {error}") from None


def _with_text_keys(value: object) -> object:
    """JSON's keys are texts; YAML has numbers, too, such as those of `id2label`. Raises ValueError."""
    if isinstance(value, list):
        return [_with_text_keys(each) for each in value]
    if not isinstance(value, dict):
        return value
    keys = [key if isinstance(key, str) else json.dumps(key, default=_refused) for key in value]
    if len(set(keys)) < len(keys):
        raise ValueError(f"a key is given twice, as a text and as a number: {', '.join(sorted(keys))}")
    return {key: _with_text_keys(each) for key, each in zip(keys, value.values(), strict=True)}


def _refused(value: object) -> object:
    kind = type(value).__name__
    raise ValueError(f"{value} is a {kind}, which JSON does not have; put it in quotes to make it a text")


JsonObject = Annotated[str, BeforeValidator(_json_object)]


def _check_encoding(value: object) -> None:
    """A configuration goes to other processes as UTF-8; arguments that were none have surrogates."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(text, str) and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            place = f"character {error.start + 1} of {len(text)}"
            raise ValueError(f"it should be text in UTF-8, which its {place} is not") from None


class Config(BaseModel):
    """Fields that do not change. Raises ConfigError for a wrong value, and for an unknown field.

    The value of a field with ``repr=False``, a secret, stands in no message.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _check_given(cls, value: object, info: ValidationInfo) -> object:
        """Refuses true for a number, as which pydantic reads it, and text that cannot be told to others."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and bool not in (kind, *get_args(kind)):
            raise ValueError("it should not be true or false; expected a value of its own")
        for text in value if isinstance(value, list | tuple) else (value,):
            _check_encoding(text)
        return value

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            fields = type(self).model_fields
            secret = [name for name, field in fields.items() if not field.repr]
            raise ConfigError(explain_validation_error(error, fields, secret)) from None
