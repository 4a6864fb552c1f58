"""Tables of options that follow a name, as ``NAME:option=value``."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from turnout.cli.options.flags import is_size
from turnout.lab.workloads.lengths import Lengths
from turnout.scripts.reference.tables import code, markdown, table
from turnout.scripts.reference.values import field_values

Options = tuple[str, type[BaseModel]]
"""A name, and a model whose fields are the options that may follow it."""


def options_by_name(named: Iterable[Options], without: Iterable[str] = ()) -> str:
    """One row for an option that several names have with the same meaning; empty if there are none."""
    having: dict[tuple[str, ...], list[str]] = {}
    for name, model in named:
        for option, field in model.model_fields.items():
            if option not in without:
                having.setdefault(_cells(option, field), []).append(code(name))
    rows = [(option, ", ".join(of), *rest) for (option, *rest), of in having.items()]
    return table(("option", "of", "value", "default", "meaning"), rows) if rows else ""


def options(model: type[BaseModel]) -> str:
    """All options of a model."""
    rows = [_cells(option, field) for option, field in model.model_fields.items()]
    return table(("option", "value", "default", "meaning"), rows)


def _cells(option: str, field: FieldInfo) -> tuple[str, ...]:
    return code(option), _value(field), _default(field), markdown(field.description or "")


def _value(field: FieldInfo) -> str:
    return "[size](configuration.md#sizes)" if is_size(field) else field_values(field)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, Lengths):
        return code(str(field.default))
    return "none" if field.default is None else code(json.dumps(field.default).strip('"'))
