"""Which plugin is meant by ``NAME`` or ``AXIS/NAME``."""

from __future__ import annotations

import click

from turnout.core.errors import UnknownPlugin, nearest
from turnout.core.plugin_axes import OBSERVER_AXIS
from turnout.core.plugins import PluginEntry, Registry

__all__ = ["find_plugin"]


def find_plugin(registry: Registry, target: str) -> PluginEntry:
    """Raises UnknownPlugin, or UsageError for a name that is on several axes."""
    axis, slash, name = target.rpartition("/")
    if slash and axis != OBSERVER_AXIS:
        return registry.entry(axis, name)
    found = [e for e in registry.entries() if e.name == name and (not slash or e.axis == axis)]
    axes = list(dict.fromkeys(entry.axis for entry in found))
    if len(axes) > 1:
        known = " or ".join(f"{axis}/{name}" for axis in axes)
        raise click.UsageError(f"{name!r} is a name on more than one axis; say {known}")
    if not found:
        names = sorted({entry.name for entry in registry.entries()})
        raise UnknownPlugin(f"no plugin is called {name!r}; known: {', '.join(names)}{nearest(name, names)}")
    return found[0]
