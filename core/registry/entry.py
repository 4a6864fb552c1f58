"""One policy on offer, or one plugin that could not be loaded."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pluggy

from turnout.core.errors import PluginError
from turnout.core.plugin_faults import plugin_errors
from turnout.core.registry.hookspecs import Factory, Flag

__all__ = ["UNKNOWN_KIND", "Origin", "PluginEntry", "explain", "printable"]

UNKNOWN_KIND = "unknown"
"""The kind shown for a plugin that broke before it could say what it offers."""


@dataclass(frozen=True)
class Origin:
    """Where a plugin comes from."""

    plugin: str
    """The entry point's name, or the file's or module's."""
    distribution: str
    version: str

    def __str__(self) -> str:
        package = " ".join(part for part in (self.distribution, self.version) if part)
        return package if self.plugin == self.distribution else f"{package} (plugin {self.plugin!r})"


@dataclass(frozen=True)
class PluginEntry:
    """A policy on offer: its kind, its name and the factory behind it."""

    kind: str
    name: str
    origin: Origin
    factory: Factory | None
    """None where the plugin broke before it registered one."""
    state: Literal["ok", "broken", "duplicate", "disabled"] = "ok"
    error: str = ""
    hook_api: int | None = None
    """The hook API version that the plugin states; None: it states none."""
    cause: BaseException | None = None
    flags: tuple[Flag, ...] = ()
    """Its options that have a flag of their own."""

    @property
    def distribution(self) -> str:
        return self.origin.distribution

    @property
    def version(self) -> str:
        return self.origin.version

    def summarized(self) -> dict[str, Any]:
        """The fields that ``turnout plugins --json`` and ``/admin/plugins`` list."""
        return {
            "kind": self.kind,
            "name": self.name,
            "plugin": self.origin.plugin,
            "distribution": self.distribution,
            "version": self.version,
            "hook_api": self.hook_api,
            "state": self.state,
            **({"error": self.error} if self.error else {}),
        }

    @property
    def hooked(self) -> bool:
        """Whether it is a hook that is always called, and not chosen by its name."""
        return isinstance(self.factory, pluggy.HookCaller)

    @property
    def docstring(self) -> str:
        """The factory's own; an observer's function's, else its module's. Imports what it needs."""
        factory = self.resolve()
        if not isinstance(factory, pluggy.HookCaller):
            return (factory.__doc__ or "").strip()
        watching = factory.get_hookimpls()[0].function
        return (watching.__doc__ or getattr(inspect.getmodule(watching), "__doc__", None) or "").strip()

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.docstring.partition("\n")[0]

    def resolve(self) -> Callable[..., Any]:
        """The factory, imported if it is a string. Raises PluginError, naming the plugin, if that fails."""
        if self.factory is None or self.state != "ok":
            raise self.fault()
        try:
            factory = _imported(self.factory) if isinstance(self.factory, str) else self.factory
            if not callable(factory):
                raise TypeError(f"{self.factory!r} is {factory!r}, which cannot be called")
        except plugin_errors() as error:
            raise PluginError(f"{self.title} cannot be loaded: {explain(error)}") from error
        return factory

    def fault(self) -> PluginError:
        """The error to raise where an entry that is not ok is asked for."""
        error = PluginError(f"{self.title} cannot be used: {self.error}")
        error.__cause__ = self.cause
        return error

    @property
    def title(self) -> str:
        """How messages name it."""
        what = "plugin" if self.kind == UNKNOWN_KIND else self.kind
        return f"{what} {self.name!r} of {self.origin}"


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def explain(error: BaseException) -> str:
    """One line: what was raised, and by which line of the plugin."""
    what = printable(_said(error))
    if isinstance(error, SyntaxError) and error.filename:  # raised by the reader of the file, not in it
        return f"{what} ({error.filename}, line {error.lineno})"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_NO_PLUGINS)]
    return f"{what} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else what


def _said(error: BaseException) -> str:
    try:
        return traceback.format_exception_only(error)[-1].strip()[:MOST_SAID]
    except Exception:  # raised by the error as it is printed
        return type(error).__name__


def printable(text: str) -> str:
    """Returns text with ``?`` for what a terminal would obey, such as colours."""
    return "".join(character if character.isprintable() else "?" for character in text)


MOST_SAID = 1000
"""Characters of an error that are repeated."""
_NO_PLUGINS = (
    str(Path(__file__).parents[1]),
    str(Path(importlib.__file__).parent),
    "<frozen",
)
"""Where the code lies that looks for plugins and imports them, ours and Python's."""
