"""What builds a plugin: the factory that it registered, and the options that the factory takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

from turnout.core.errors import ConfigError, PluginError, TurnoutError
from turnout.core.plugin_faults import plugin_errors
from turnout.core.registry.entry import PluginEntry, explain
from turnout.core.registry.kinds import KINDS, kind_named
from turnout.core.registry.options import Options, read_options

__all__ = ["Create", "PluginFactory"]

Create = Callable[[str, str], object]
"""From a kind and a spec such as ``NAME:option=value`` to the plugin."""


@dataclass(frozen=True)
class PluginFactory:
    """The factory of an entry, imported."""

    entry: PluginEntry
    call: Callable[..., Any]
    options: Options

    @classmethod
    def of(cls, entry: PluginEntry) -> PluginFactory:
        """Imports the factory. Raises PluginError for a class of another kind or an unreadable signature."""
        call = entry.resolve()
        base = kind_named(entry.kind).base
        if isinstance(call, type) and not issubclass(call, base):
            raise PluginError(
                f"{entry.title} is {call.__qualname__!r}, which does not derive from {base.__name__}; "
                "let it inherit from that class"
            )
        try:
            return cls(entry, call, read_options(call))
        except Exception as error:
            raise PluginError(f"{entry.title} has options that cannot be read: {explain(error)}") from error

    def arguments(
        self, options: Mapping[str, str], given: Mapping[str, object], create: Create
    ) -> dict[str, Any]:
        """Keyword arguments, validated: `options` from the spec, `given` from flags; None is not given.

        `create` builds what an option names that is itself a plugin. Raises ConfigError for options that
        the factory does not take.
        """
        with self._naming():
            values = _merged(options, given)
        values = _with_plugins(self.options, values, create)  # errors there name the inner plugin
        with self._naming():
            return self.options.validate(values)

    def build(self, arguments: Mapping[str, Any]) -> object:
        """Call the factory. Whatever it raises comes out as an error that names the plugin."""
        try:
            built: object = self.call(**arguments)
        except ConfigError as error:
            raise ConfigError(f"{self.entry.title}: {error}") from error
        except TurnoutError:
            raise
        except plugin_errors() as error:
            raise PluginError(f"{self.entry.title} failed to start: {explain(error)}") from error
        base = kind_named(self.entry.kind).base
        if not isinstance(built, base):
            given = type(built).__name__
            raise PluginError(
                f"{self.entry.title} returned an object of {given!r}, which does not derive from "
                f"{base.__name__}; let it inherit from that class"
            )
        return built

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            raise ConfigError(f"{self.entry.kind} {self.entry.name!r}: {error}") from None


def _merged(options: Mapping[str, str], given: Mapping[str, object]) -> dict[str, object]:
    given = {name: value for name, value in given.items() if value is not None}
    if twice := sorted(options.keys() & given.keys()):
        raise ConfigError(f"{', '.join(twice)} given twice: as an option and by a flag of its own")
    return {**options, **given}


def _with_plugins(options: Options, values: dict[str, object], create: Create) -> dict[str, object]:
    """Options whose type is a plugin's base class are given as that plugin's name and options."""
    kinds = {name: kind for name, type_ in options.types().items() if (kind := _kind_of(type_)) is not None}
    return {
        name: create(kinds[name], value) if name in kinds and isinstance(value, str) else value
        for name, value in values.items()
    }


def _kind_of(annotation: Any) -> str | None:
    types = (annotation, *get_args(annotation))  # X, or the X of `X | None`
    return next((kind.name for kind in KINDS.values() if any(kind.base is each for each in types)), None)
