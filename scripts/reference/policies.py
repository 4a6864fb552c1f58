"""docs/reference/policies.md: every policy in the package, what it does, and its options."""

from __future__ import annotations

import json
from functools import partial

from pydantic.fields import FieldInfo

from turnout.cli.options.flags import is_size
from turnout.core.registry.entry import PluginEntry
from turnout.core.registry.factory import PluginFactory
from turnout.core.registry.hookspecs import PROJECT
from turnout.core.registry.kinds import KINDS
from turnout.core.registry.registry import Registry
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, markdown, paragraph, table
from turnout.scripts.reference.values import field_values


def blocks() -> Blocks:
    """A block for each kind."""
    return {f"policies of {kind}": partial(_kind, kind) for kind in KINDS}


def _kind(kind: str) -> str:
    entries = [entry for entry in Registry.load().usable(kind) if entry.distribution == PROJECT]
    policies = table(("name", "what it does"), [(code(e.name), paragraph(e.docstring)) for e in entries])
    options = _options(entries)
    return f"{policies}\n{options}" if options else policies


def _options(entries: list[PluginEntry]) -> str:
    """An option that several policies have with the same meaning is one row."""
    having: dict[tuple[str, str, str, str], list[str]] = {}
    for entry in entries:
        for name, field in PluginFactory.of(entry).options.model.model_fields.items():
            option = code(name), _value(field), _default(field), markdown(field.description or "")
            having.setdefault(option, []).append(code(entry.name))
    rows = [(name, ", ".join(of), *option) for (name, *option), of in having.items()]
    return table(("option", "of", "value", "default", "meaning"), rows) if rows else ""


def _value(field: FieldInfo) -> str:
    return "[size](configuration.md#sizes)" if is_size(field) else field_values(field)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "none" if field.default is None else code(json.dumps(field.default).strip('"'))
