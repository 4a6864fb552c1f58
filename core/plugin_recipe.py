"""A chosen plugin with its options validated: all that is left is to build it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turnout.core.errors import ConfigError, PluginError, TurnoutError
from turnout.core.plugin_axes import axis_named
from turnout.core.plugin_entry import PluginEntry, explain
from turnout.core.plugin_options import Options, read_options
from turnout.core.plugin_spec import PluginSpec

__all__ = ["Recipe", "options_of"]


@dataclass(frozen=True)
class Recipe:
    entry: PluginEntry
    factory: Callable[..., Any]
    arguments: Mapping[str, Any]

    @classmethod
    def prepare(cls, entry: PluginEntry, spec: PluginSpec, given: Mapping[str, object]) -> Recipe:
        """`given` are options from flags of their own; None is not given."""
        factory = entry.resolve()
        base = axis_named(entry.axis).base
        if isinstance(factory, type) and not issubclass(factory, base):
            raise PluginError(f"{entry.title} is {factory.__qualname__!r}, which is no {base.__name__}")
        options = options_of(entry)
        try:
            return cls(entry, factory, options.validate(_merged(spec.options, given)))
        except ConfigError as error:
            raise ConfigError(f"{entry.axis} {entry.name!r}: {error}") from None

    def build(self) -> object:
        """Call the factory. Whatever it raises comes out as an error that names the plugin."""
        try:
            built: object = self.factory(**self.arguments)
        except ConfigError as error:
            raise ConfigError(f"{self.entry.title}: {error}") from error
        except TurnoutError:
            raise
        except Exception as error:
            raise PluginError(f"{self.entry.title} failed to start: {explain(error)}") from error
        base = axis_named(self.entry.axis).base
        if not isinstance(built, base):
            given = type(built).__name__
            raise PluginError(f"{self.entry.title} gave a {given!r}, which is no {base.__name__}")
        return built


def options_of(entry: PluginEntry) -> Options:
    """Raises PluginError for a signature that cannot be read."""
    factory = entry.resolve()
    try:
        return read_options(factory)
    except Exception as error:
        raise PluginError(f"{entry.title} has options that cannot be read: {explain(error)}") from error


def _merged(options: Mapping[str, str], given: Mapping[str, object]) -> dict[str, object]:
    given = {name: value for name, value in given.items() if value is not None}
    if twice := sorted(options.keys() & given.keys()):
        raise ConfigError(f"{', '.join(twice)} given twice: as an option and by a flag of its own")
    return {**options, **given}
