"""A chosen plugin with its options validated: all that is left is to build it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

from turnout.core.errors import ConfigError, PluginError, TurnoutError
from turnout.core.registry.entry import PluginEntry, explain
from turnout.core.registry.kinds import KINDS, kind_named
from turnout.core.registry.options import Options, read_options
from turnout.core.registry.spec import PluginSpec

__all__ = ["Create", "Recipe", "options_of"]

Create = Callable[[str, str], object]
"""From a kind and a spec such as ``ngram:longest=3`` to the plugin."""


@dataclass(frozen=True)
class Recipe:
    entry: PluginEntry
    factory: Callable[..., Any]
    arguments: Mapping[str, Any]

    @classmethod
    def prepare(
        cls, entry: PluginEntry, spec: PluginSpec, given: Mapping[str, object], create: Create
    ) -> Recipe:
        """`given` are options from flags of their own; None is not given.

        `create` builds what an option names that is itself a plugin.
        """
        factory = entry.resolve()
        base = kind_named(entry.kind).base
        if isinstance(factory, type) and not issubclass(factory, base):
            raise PluginError(f"{entry.title} is {factory.__qualname__!r}, which is no {base.__name__}")
        options = options_of(entry)
        with _naming(entry):
            values = _merged(spec.options, given)
        values = _with_plugins(options, values, create)  # whose faults are their own
        with _naming(entry):
            return cls(entry, factory, options.validate(values))

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
        base = kind_named(self.entry.kind).base
        if not isinstance(built, base):
            given = type(built).__name__
            raise PluginError(f"{self.entry.title} gave a {given!r}, which is no {base.__name__}")
        return built


@contextmanager
def _naming(entry: PluginEntry) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{entry.kind} {entry.name!r}: {error}") from None


def options_of(entry: PluginEntry) -> Options:
    """Raises PluginError for a signature that cannot be read."""
    factory = entry.resolve()
    try:
        return read_options(factory)
    except Exception as error:
        raise PluginError(f"{entry.title} has options that cannot be read: {explain(error)}") from error


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


def _merged(options: Mapping[str, str], given: Mapping[str, object]) -> dict[str, object]:
    given = {name: value for name, value in given.items() if value is not None}
    if twice := sorted(options.keys() & given.keys()):
        raise ConfigError(f"{', '.join(twice)} given twice: as an option and by a flag of its own")
    return {**options, **given}
