"""Finds the plugin that ``NAME`` or ``KIND/NAME`` means."""

from __future__ import annotations

import click

from turnout.core.errors import UnknownPlugin, did_you_mean
from turnout.core.registry.kinds import OBSERVER_KIND
from turnout.core.registry.registry import PluginEntry, Registry

__all__ = ["find_plugin"]


def find_plugin(registry: Registry, target: str) -> PluginEntry:
    """Returns the plugin. Raises UnknownPlugin, or UsageError if plugins of several kinds have that name."""
    kind, slash, name = target.rpartition("/")
    if slash and kind != OBSERVER_KIND:
        return registry.entry(kind, name)
    there = [entry for entry in registry.entries() if not slash or entry.kind == kind]
    found = [entry for entry in there if entry.name == name] or _offered_by(name, there)
    kinds = list(dict.fromkeys(entry.kind for entry in found))
    if len(kinds) > 1:
        known = " or ".join(f"{kind}/{name}" for kind in kinds)
        raise click.UsageError(f"{name!r} is the name of plugins of more than one kind; use {known}")
    if not found:
        names = sorted({entry.name for entry in registry.entries()})
        raise UnknownPlugin(
            f"no plugin is called {name!r}; known: {', '.join(names)}{did_you_mean(name, names)}"
        )
    return found[0]


def _offered_by(plugin: str, there: list[PluginEntry]) -> list[PluginEntry]:
    """Returns what the package or file of that name offers. Raises UsageError for several offers."""
    offers = [entry for entry in there if entry.origin.plugin == plugin]
    if len(offers) > 1:
        listed = " and ".join(f"{entry.kind}/{entry.name}" for entry in offers)
        raise click.UsageError(f"plugin {plugin!r} offers {listed}; name one of them")
    return offers
