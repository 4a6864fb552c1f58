"""The guard of all calls to plugins in service: names the plugin behind an error, and logs what it costs.

A guard is a ``try`` around the call, which costs nothing while nothing is raised, and `PluginFaults.report`
behind it. Where a fault is not survived (KV memory, a model's layers), no guard stands around the call: the
error travels to the loop of the engine, and `blamed` finds the plugin in its traceback. What either costs is
in `core/fault_table.py`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from types import FrameType
from typing import Final, NamedTuple, TypeVar

from turnout.core.errors import TurnoutError
from turnout.core.fault_table import fault_of

__all__ = [
    "PluginFaults",
    "at_most",
    "blame",
    "blamed",
    "described",
    "fault_message",
    "name_plugin",
    "plugin_errors",
    "title_of",
]

T = TypeVar("T")

_NOT_THEIRS: Final = (KeyboardInterrupt, GeneratorExit)
"""The user's interrupt and the end of a generator are none of a plugin's doing. All else that a plugin raises
is, though no Exception: `sys.exit`, a panic of an extension written in Rust, a class of its own."""
MAX_TEXT = 2000
"""Characters of an error's text that a message repeats: a message goes to clients and into the log."""
_TITLE = "_turnout_title"
_NOUNS = {
    "scheduler": "scheduling policy",
    "admission": "admission policy",
    "kv": "KV backend",
    "kv_eviction": "eviction policy",
    "quantization": "quantizer",
    "decoding": "decoding strategy",
    "pooling": "pooling strategy",
    "model": "model family",
}


def plugin_errors(*others: type[BaseException]) -> tuple[type[BaseException], ...]:
    """Returns what a guard survives of what was raised: ``except plugin_errors():``.

    Python evaluates that expression only once something was raised. others: are survived, too.
    """
    raised = sys.exc_info()[0]
    if raised is None or issubclass(raised, _NOT_THEIRS):
        return (Exception, *others)
    return (raised, *others)


def at_most(count: int, answers: Iterable[T]) -> Iterator[T]:
    """Yields what a plugin answered. Raises ValueError for more than `count`: an iterator may never end."""
    left = iter(answers)
    yield from islice(left, count)
    for _ in left:
        raise ValueError(f"gave more than {count} answers; expected no more than it was asked for")


def name_plugin(plugin: object, title: str) -> None:
    """Notes how messages name a plugin, or an object that it made, such as a layer or a cache.

    An object that takes no attributes stays nameless, and is then called by its class and module.
    """
    with suppress(AttributeError, TypeError):
        object.__setattr__(plugin, _TITLE, title)


def title_of(plugin: object, kind: str) -> str:
    """Returns how messages name a plugin: as the user named it, and its package."""
    title = _noted_title(plugin)
    if title is not None:
        return title
    made = plugin if isinstance(plugin, type) else type(plugin)
    return f"{_NOUNS.get(kind, kind.replace('_', ' '))} {made.__name__} of {made.__module__}"


class Blamed(NamedTuple):
    """The plugin in whose code an error was raised."""

    title: str
    method: str
    """The method that Turnout had called."""


def blamed(error: BaseException) -> Blamed | None:
    """Returns the plugin in whose code an error was raised; None if no plugin that has a name was.

    Of several on the way, as a proposer that a decoding strategy calls, the innermost is to blame.
    """
    found: Blamed | None = None
    owner: object = None
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        trace = trace.tb_next
        candidate = _first_argument(frame)
        title = None if candidate is None else _noted_title(candidate)
        if title is None:
            continue
        name = frame.f_code.co_name
        if found is None or candidate is not owner or _is_private(found.method):
            owner, found = candidate, Blamed(title, name)
    return found


def blame(title: str, method: str, error: BaseException) -> Blamed:
    """Returns the plugin that was called, or one that it called in turn, such as a strategy's proposer."""
    inner = blamed(error)
    return Blamed(title, method) if inner is None or inner.title == title else inner


def fault_message(title: str, method: str, error: BaseException) -> str:
    """Returns the line that says which plugin failed, where, and why."""
    return f"{title}: {method} failed: {described(error)}"


class PluginFaults:
    """Reports the faults of plugins of one kind to one logger, each once for its method and type of error."""

    def __init__(self, kind: str, logger: logging.Logger) -> None:
        self._kind = kind
        self._logger = logger
        self._reported: set[tuple[str, str, type[BaseException]]] = set()

    def report(self, plugin: object, method: str, error: BaseException) -> str:
        """Logs a fault and what goes on instead; returns the line that names the plugin and its method."""
        title, failed = blame(title_of(plugin, self._kind), method, error)
        message = fault_message(title, failed, error)
        key = (title, failed, type(error))
        if key not in self._reported:
            self._reported.add(key)
            instead = fault_of(self._kind, method).instead
            self._logger.error("%s; %s (said once)", message, instead, exc_info=error)
        return message


def _noted_title(candidate: object) -> str | None:
    """The title that `name_plugin` noted, read so that no code of the object's runs."""
    try:
        title = object.__getattribute__(candidate, "__dict__").get(_TITLE)
    except (AttributeError, TypeError):
        return None
    return title if isinstance(title, str) else None


def _first_argument(frame: FrameType) -> object:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def described(error: BaseException) -> str:
    """As `describe_error`, whatever a plugin's own exception does, and as text that can be sent."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        return name
    text = text[:MAX_TEXT].encode("utf-8", "replace").decode()
    if not text:
        return name
    return text if isinstance(error, TurnoutError) else f"{name}: {text}"
