"""What the configurations are made of: how a field's text becomes its value, and how a wrong one is told."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from turnout.core.errors import ConfigError
from turnout.core.validation import explain_validation_error

__all__ = ["Config", "JsonObject", "Listed", "PathText", "PluginNames", "PluginSpecs", "Texts"]


def _path_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _names(value: object) -> object:
    """Splits ``a,b``, or each text of a list, into names."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    return tuple(name.strip() for text in texts for name in str(text).split(",") if name.strip())


def _specs(value: object) -> object:
    """A text is a list of one: commas separate the options of a spec."""
    texts = [value] if isinstance(value, str) else value
    return tuple(texts) if isinstance(texts, list) else texts


PathText = Annotated[str, BeforeValidator(_path_text)]
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
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"it should be a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("it should be a JSON object, such as '{\"key\": 1}'")
    return json.dumps(value, sort_keys=True)


JsonObject = Annotated[str, BeforeValidator(_json_object)]


class Config(BaseModel):
    """Fields that do not change. Raises ConfigError for a wrong value, and for an unknown field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain_validation_error(error, type(self).model_fields)) from None
