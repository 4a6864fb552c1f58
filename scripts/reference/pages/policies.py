"""docs/reference/policies.md: every policy in the package, what it does, and its options; models.md, too."""

from __future__ import annotations

from functools import partial

from turnout.core.interfaces.models import ModelFamily
from turnout.core.registry.entry import PluginEntry
from turnout.core.registry.factory import PluginFactory
from turnout.core.registry.hookspecs import PROJECT
from turnout.core.registry.kinds import KINDS
from turnout.core.registry.registry import Registry
from turnout.scripts.reference import model_tables
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.options import options_by_name
from turnout.scripts.reference.tables import code, paragraph, table

UNLISTED = ("model", "observer")
"""Kinds that have a table of their own, or no policy in the package."""


def blocks() -> Blocks:
    """A block for each kind."""
    return {
        **{f"policies of {kind}": partial(_kind, kind) for kind in KINDS if kind not in UNLISTED},
        "policies of model": _families,
        **model_tables.blocks(),
    }


def _ours(kind: str) -> list[PluginEntry]:
    return [entry for entry in Registry.load().usable(kind) if entry.distribution == PROJECT]


def _families() -> str:
    rows = [
        (code(entry.name), ", ".join(map(code, _architectures(entry))), paragraph(entry.docstring))
        for entry in _ours("model")
    ]
    return table(("name", "architectures", "what it builds"), rows)


def _architectures(entry: PluginEntry) -> tuple[str, ...]:
    family = entry.resolve()
    assert isinstance(family, type) and issubclass(family, ModelFamily)
    return family.architectures


def _kind(kind: str) -> str:
    entries = _ours(kind)
    policies = table(("name", "what it does"), [(code(e.name), paragraph(e.docstring)) for e in entries])
    options = options_by_name((e.name, PluginFactory.of(e).options.model) for e in entries)
    return f"{policies}\n{options}" if options else policies
