"""The errors that Turnout raises on purpose. Commands and handlers derive some of their own.

TurnoutError
├── ConfigError            a flag, key or option that cannot be used as given
│   ├── UnknownPlugin      a policy name that nobody registered
│   └── PluginError        a plugin that broke, is misspelt or clashes with another
│       └── PolicyError    a policy that answered what the mechanism cannot carry out
├── ModelError             a checkpoint that is missing, damaged or not supported
├── RequestError           one request that cannot be served; the others go on
│   ├── Overloaded         one that could be, but not now
│   └── Dropped            one that the scheduling policy gave up
└── EngineError            the engine failed, at one request or as a whole
    └── EngineGone         as a whole: it is not there any more
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "ConfigError",
    "Dropped",
    "EngineError",
    "EngineGone",
    "ModelError",
    "Overloaded",
    "PluginError",
    "PolicyError",
    "RequestError",
    "TurnoutError",
    "UnknownPlugin",
    "blaming",
    "described",
    "nearest",
]


class TurnoutError(Exception):
    """Base of all; its message says what was wrong, what was expected and what to do."""


class ConfigError(TurnoutError):
    """A flag, key or option that cannot be used as given."""


class UnknownPlugin(ConfigError):
    """A policy name that nobody registered."""


class PluginError(ConfigError):
    """A plugin that broke, is misspelt or clashes with another; names it."""


class PolicyError(PluginError):
    """A policy that answered what the mechanism cannot carry out; names it."""


class ModelError(TurnoutError):
    """A checkpoint that is missing, damaged or not supported."""


class RequestError(TurnoutError):
    """One request that cannot be served; the others go on.

    ``param`` names the offending field when there is one.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class Overloaded(RequestError):
    """A request that could be served, but not now: too many are waiting."""


class Dropped(RequestError):
    """A request that the scheduling policy gave up."""


class EngineError(TurnoutError):
    """The engine failed, at one request or as a whole."""


class EngineGone(EngineError):
    """The whole engine, not one request."""


def described(error: Exception) -> str:
    """Ours explain themselves; of any other the type is half of what it says: KeyError: 'oops'."""
    name, text = type(error).__name__, str(error)
    if not text:
        return name
    return text if isinstance(error, TurnoutError) else f"{name}: {text}"


@contextmanager
def blaming(plugin: str) -> Iterator[None]:
    """What goes wrong inside is `plugin`'s fault, and becomes a PluginError that says so."""
    try:
        yield
    except TurnoutError:
        raise
    except Exception as error:
        raise PluginError(f"{plugin} failed: {described(error)}") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'fcfs'?"`` when something known is close to `name`, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
