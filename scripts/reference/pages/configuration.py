"""docs/reference/configuration.md: the fields of the configuration, and the options of our policies."""

from __future__ import annotations

from functools import partial

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from turnout.cli.options.flags import is_size, size_text
from turnout.config import EngineConfig, ModelOptions, ServerConfig
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, markdown, table
from turnout.scripts.reference.values import field_values
from turnout.server.http.openapi.docstrings import field_docstrings

DEFAULT = "; default: "
"""Ends a description: what holds where nothing is given, if no value of the type says it."""


def blocks() -> Blocks:
    return {
        "engine settings": partial(_fields, EngineConfig),
        "server settings": partial(_fields, ServerConfig),
        "model settings": partial(_fields, ModelOptions, flags=False),
    }


def _fields(model: type[BaseModel], *, flags: bool = True) -> str:
    docstrings = field_docstrings(model)
    return table(
        ("flag" if flags else "key", "value", "default", "meaning"),
        [
            (
                _flag(name) if flags else code(name.replace("_", "-")),
                _value(field),
                *_default_and_meaning(field, docstrings.get(name, "")),
            )
            for name, field in model.model_fields.items()
        ],
    )


def _flag(name: str) -> str:
    return code(f"--{name.replace('_', '-')}")


def _value(field: FieldInfo) -> str:
    return "[size](#sizes)" if is_size(field) else field_values(field)


def _default_and_meaning(field: FieldInfo, docstring: str) -> tuple[str, str]:
    meaning, _, default = (field.description or "").partition(DEFAULT)
    if default:
        default = default.removesuffix(".")
        is_number = default.replace(".", "").isdecimal()
        return code(default) if is_number else default, markdown(f"{meaning}. {docstring}")
    return _default(field), markdown(f"{meaning} {docstring}")


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(size_text(value) if is_size(field) else str(value))
