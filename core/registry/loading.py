"""Finding plugins and asking them what they offer, each on its own so that none can harm another."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pluggy

from turnout.core.errors import ConfigError, PluginError, did_you_mean, shortened
from turnout.core.plugin_faults import plugin_errors
from turnout.core.registry import hookspecs
from turnout.core.registry.entry import UNKNOWN_KIND, Origin, PluginEntry, explain, printable
from turnout.core.registry.hookspecs import PROJECT, Factory, Flag, Register
from turnout.core.registry.kinds import KINDS, OBSERVER_HOOKS, OBSERVER_KIND, Kind
from turnout.core.registry.spec import NAME

__all__ = ["INLINE_FILE", "disabled_by_environment", "find_plugins"]

logger = logging.getLogger(__name__)

INLINE_FILE = "turnout_plugins.py"
DISABLE = "TURNOUT_DISABLE_PLUGINS"
MOST_NAME = 200
"""Characters of a name in a package's metadata that are shown."""
IMPORT_SECONDS = 10.0
"""After which the log names a plugin that is still being imported."""
_HOOKS = [*(kind.hook for kind in KINDS.values()), *OBSERVER_HOOKS]


@dataclass(frozen=True)
class _Candidate:
    origin: Origin
    load: Callable[[], object]


def find_plugins(
    extra: Iterable[object], config_folder: Path | None, disabled: Collection[str] = ()
) -> list[PluginEntry]:
    """What all plugins offer, with the broken ones among it; nothing is raised for those.

    `disabled` are not imported, by the name of the plugin or of its package. Raises ConfigError for ours.
    """
    seen: list[object] = []
    entries: list[PluginEntry] = []
    for candidate in _candidates(extra, config_folder):
        if {candidate.origin.plugin, candidate.origin.distribution} & set(disabled):
            entries.append(_disabled(candidate.origin))
        else:
            entries += _offers(candidate, seen)
    return entries


def disabled_by_environment() -> tuple[str, ...]:
    """What ``TURNOUT_DISABLE_PLUGINS`` names, separated by commas."""
    return tuple(name for part in os.environ.get(DISABLE, "").split(",") if (name := part.strip()))


def _candidates(extra: Iterable[object], config_folder: Path | None) -> Iterator[_Candidate]:
    for point in sorted(entry_points(group=PROJECT), key=_order):
        yield _Candidate(_origin(point), point.load)
    # `os.path`, since `pathlib` raises OSError for a name that no file can have.
    if config_folder is not None and not os.path.isdir(config_folder):
        raise ConfigError(
            f"there is no folder {config_folder}, in which --plugins-folder says that plugins are"
        )
    if config_folder is not None and (file := config_folder / INLINE_FILE).is_file():
        yield _Candidate(Origin(INLINE_FILE, INLINE_FILE, ""), lambda: _load_file(file))
    for plugin in extra:
        name = getattr(plugin, "__name__", type(plugin).__name__)
        yield _Candidate(Origin(name, name, ""), lambda plugin=plugin: plugin)  # type: ignore[misc]


def _order(point: EntryPoint) -> tuple[bool, str, str]:
    """The built-in plugins first, the others by name: independent of the order of installation."""
    distribution = _origin(point).distribution
    return distribution != PROJECT, distribution, point.name


def _origin(point: EntryPoint) -> Origin:
    try:
        assert point.dist is not None
        found = (point.name, point.dist.name, point.dist.version)
    except Exception:  # metadata that is missing or damaged
        found = (point.name, point.value, "")
    return Origin(*(printable(str(part))[:MOST_NAME] for part in found))


def _load_file(file: Path) -> object:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # so that "turnout_plugins:Name" and annotations resolve
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[file.stem]
        raise
    return module


def _disabled(origin: Origin) -> PluginEntry:
    if origin.distribution == PROJECT:
        raise ConfigError(f"{origin.plugin!r} has Turnout's own policies, which cannot be disabled")
    error = f"disabled by --disable-plugin or {DISABLE}"
    return PluginEntry(UNKNOWN_KIND, origin.plugin, origin, None, state="disabled", error=error)


def _offers(candidate: _Candidate, seen: list[object]) -> list[PluginEntry]:
    offered: list[PluginEntry] = []
    try:
        # Commands print JSON: what a module prints as it is imported goes elsewhere.
        with _noting_torch(candidate.origin), _noting_slowness(candidate.origin), redirect_stdout(sys.stderr):
            plugin = candidate.load()
        if any(plugin is other for other in seen):
            return []
        seen.append(plugin)
        _ask(plugin, candidate.origin, offered)
    except plugin_errors() as error:  # a module may call sys.exit as it is imported
        message = str(error) if isinstance(error, PluginError) else explain(error)
        nameless = PluginEntry(UNKNOWN_KIND, candidate.origin.plugin, candidate.origin, None)
        return [replace(entry, state="broken", error=message, cause=error) for entry in offered or [nameless]]
    api = getattr(plugin, "turnout_hook_api", None)
    return [replace(entry, hook_api=api if isinstance(api, int) else None) for entry in offered]


@contextmanager
def _noting_torch(origin: Origin) -> Iterator[None]:
    """Warns of a plugin that imports torch, for which every command and the server would wait seconds."""
    before = "torch" in sys.modules
    yield
    if not before and "torch" in sys.modules:
        logger.warning(
            "plugin %s imports torch as it is imported, for which every command waits; import it inside the "
            "methods that need it, or register its factory as 'package.module:Name'",
            origin,
        )


@contextmanager
def _noting_slowness(origin: Origin) -> Iterator[None]:
    """Says which plugin a command waits for, as nothing can end an import that does not return."""
    warning = "plugin %s has not been imported for %g s; --disable-plugin %s leaves it out"
    timer = threading.Timer(IMPORT_SECONDS, logger.warning, (warning, origin, IMPORT_SECONDS, origin.plugin))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _ask(plugin: object, origin: Origin, offered: list[PluginEntry]) -> None:
    """Call the plugin's hooks, adding what they register to `offered`, up to where one fails."""
    _check_version(plugin)
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    _check_parameters(manager, plugin)
    manager.register(plugin)
    _check_hooks(manager, plugin)
    for kind in KINDS.values():
        getattr(manager.hook, kind.hook)(register=_register(kind, origin, offered))
    for name in OBSERVER_HOOKS:
        hook = getattr(manager.hook, name)
        if hook.get_hookimpls():
            offered.append(PluginEntry(OBSERVER_KIND, f"{origin.plugin}.{name}", origin, hook))


def _check_version(plugin: object) -> None:
    current = hookspecs.HOOK_API_VERSION
    for attribute in ("turnout_hook_api", "HOOK_API_VERSION"):
        wanted = getattr(plugin, attribute, current)
        if type(wanted) is not int:
            raise PluginError(f"its {attribute} is {shortened(wanted)}; expected an integer, as {current}")
        if wanted != current:
            raise PluginError(
                f"it was written for hook API {wanted} ({attribute}), this Turnout has {current}; "
                "install matching versions"
            )


def _check_parameters(manager: pluggy.PluginManager, plugin: object) -> None:
    for name in _HOOKS:
        implementation = getattr(plugin, name, None)
        if implementation is None or manager.parse_hookimpl_opts(plugin, name) is None:
            continue
        given = getattr(manager.hook, name).spec.argnames
        for parameter in inspect.signature(implementation).parameters.values():
            named = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            if named and parameter.default is parameter.empty and parameter.name not in given:
                listed = ", ".join(given)
                raise PluginError(
                    f"its {name} takes {parameter.name!r}; a hook of that name is given: {listed}"
                )


def _check_hooks(manager: pluggy.PluginManager, plugin: object) -> None:
    hooks = manager.get_hookcallers(plugin) or []
    if not hooks:
        raise PluginError(f"it implements no hook; mark one of {', '.join(_HOOKS)} with @turnout.hookimpl")
    for hook in hooks:
        needed = any(not implementation.optionalhook for implementation in hook.get_hookimpls())
        if needed and not hook.has_spec():
            hint = did_you_mean(hook.name, _HOOKS)
            raise PluginError(f"there is no hook {hook.name!r}; known: {', '.join(_HOOKS)}{hint}")


def _register(kind: Kind, origin: Origin, offered: list[PluginEntry]) -> Register:
    def register(name: str, factory: Factory, flags: Sequence[Flag] = ()) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a name for a {kind.name}; use letters, digits, '_', '-' and '.'"
            )
        if not callable(factory) and not (isinstance(factory, str) and all(factory.partition(":"))):
            raise TypeError(f"{kind.name} {name!r} needs a class or 'package.module:Class', not {factory!r}")
        offered.append(PluginEntry(kind.name, name, origin, factory, flags=tuple(flags)))

    return register
