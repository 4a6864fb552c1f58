"""docs/reference/policies.md: every policy in the package, what it does, and its options."""

from __future__ import annotations

from functools import partial

from turnout.core.registry.factory import PluginFactory
from turnout.core.registry.hookspecs import PROJECT
from turnout.core.registry.kinds import KINDS
from turnout.core.registry.registry import Registry
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.options import options_by_name
from turnout.scripts.reference.tables import code, paragraph, table


def blocks() -> Blocks:
    """A block for each kind."""
    return {f"policies of {kind}": partial(_kind, kind) for kind in KINDS}


def _kind(kind: str) -> str:
    entries = [entry for entry in Registry.load().usable(kind) if entry.distribution == PROJECT]
    policies = table(("name", "what it does"), [(code(e.name), paragraph(e.docstring)) for e in entries])
    options = options_by_name((e.name, PluginFactory.of(e).options.model) for e in entries)
    return f"{policies}\n{options}" if options else policies
