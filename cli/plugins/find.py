"""Which plugin is meant by ``NAME`` or ``AXIS/NAME``."""

from __future__ import annotations

import click

from turnout.core.errors import UnknownPlugin, nearest
from turnout.core.registry.kinds import OBSERVER_AXIS
from turnout.core.registry.registry import PluginEntry, Registry

__all__ = ["find_plugin"]


def find_plugin(registry: Registry, target: str) -> PluginEntry:
    """Raises UnknownPlugin, or UsageError for a name that is on several axes."""
    axis, slash, name = target.rpartition("/")
    if slash and axis != OBSERVER_AXIS:
        return registry.entry(axis, name)
    there = [entry for entry in registry.entries() if not slash or entry.axis == axis]
    found = [entry for entry in there if entry.name == name] or _offered_by(name, there)
    axes = list(dict.fromkeys(entry.axis for entry in found))
    if len(axes) > 1:
        known = " or ".join(f"{axis}/{name}" for axis in axes)
        raise click.UsageError(f"{name!r} is a name on more than one axis; say {known}")
    if not found:
        names = sorted({entry.name for entry in registry.entries()})
        raise UnknownPlugin(f"no plugin is called {name!r}; known: {', '.join(names)}{nearest(name, names)}")
    return found[0]


def _offered_by(plugin: str, there: list[PluginEntry]) -> list[PluginEntry]:
    """What a plugin of that name offers, which must be one thing."""
    offers = [entry for entry in there if entry.origin.plugin == plugin]
    if len(offers) > 1:
        listed = " and ".join(f"{entry.axis}/{entry.name}" for entry in offers)
        raise click.UsageError(f"plugin {plugin!r} offers {listed}; say which")
    return offers
