"""The registry: every policy on offer, by kind and name."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol, overload

from turnout.core.errors import (
    ConfigError,
    ModelError,
    PluginError,
    UnknownPlugin,
    did_you_mean,
    naming,
    shortened,
)
from turnout.core.interfaces.admission import AdmissionPolicy
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend
from turnout.core.interfaces.launcher import Launcher
from turnout.core.interfaces.logits_processor import LogitsProcessor
from turnout.core.interfaces.models import ModelFamily
from turnout.core.interfaces.observers import Observer, WatchingHook
from turnout.core.interfaces.pooling import Pooling
from turnout.core.interfaces.proposer import Proposer
from turnout.core.interfaces.quantization import Quantizer
from turnout.core.interfaces.router import Router
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.plugin_faults import name_plugin
from turnout.core.registry.entry import UNKNOWN_KIND, PluginEntry
from turnout.core.registry.factory import PluginFactory
from turnout.core.registry.hookspecs import PROJECT
from turnout.core.registry.kinds import OBSERVER_HOOKS, OBSERVER_KIND, kind_named
from turnout.core.registry.loading import disabled_by_environment, find_plugins
from turnout.core.registry.options import Option
from turnout.core.registry.spec import PluginSpec

__all__ = ["PluginEntry", "Registry"]

logger = logging.getLogger(__name__)


class PluginSettings(Protocol):
    """Which plugins to load; `EngineConfig` says it."""

    @property
    def plugins_path(self) -> Path | None: ...
    @property
    def disable_plugin(self) -> tuple[str, ...]: ...
    @property
    def strict_plugins(self) -> bool: ...


class Registry:
    """Looks policies up and builds them. A broken plugin is an error where it is named, else a warning."""

    def __init__(self, entries: Iterable[PluginEntry]) -> None:
        self._entries = _marking_duplicates(entries)
        self._warned = False

    @classmethod
    def of(cls, config: PluginSettings) -> Registry:
        """What an engine of that configuration has to choose from."""
        return cls.load(
            config_folder=config.plugins_path, disabled=config.disable_plugin, strict=config.strict_plugins
        )

    @classmethod
    def load(
        cls,
        *,
        extra: Iterable[object] = (),
        config_folder: Path | None = None,
        disabled: Iterable[str] = (),
        strict: bool = False,
    ) -> Registry:
        """Installed plugins, ``turnout_plugins.py`` in `config_folder`, and `extra` modules or objects.

        `disabled`, and those that ``TURNOUT_DISABLE_PLUGINS`` names, are not loaded. `strict`: one that
        cannot be used raises PluginError, even where the configuration does not name it.
        """
        unwanted = {*disabled, *disabled_by_environment()}
        registry = cls(find_plugins(extra, config_folder, unwanted))
        for name in sorted(
            unwanted - {n for e in registry._entries for n in (e.origin.plugin, e.distribution)}
        ):
            logger.warning("no plugin is called %r, so none is disabled by that name", name)
        unusable = [entry for entry in registry._entries if entry.state in ("broken", "duplicate")]
        if strict and unusable:
            raise unusable[0].fault()
        return registry

    # -------------------------------------------------------------- what there is

    def entries(self) -> list[PluginEntry]:
        """All entries, broken ones too; the built-in ones first."""
        return list(self._entries)

    def names(self, kind: str) -> list[str]:
        """The names of the policies of a kind that can be used, sorted."""
        return sorted({entry.name for entry in self.usable(kind)})

    def usable(self, kind: str) -> list[PluginEntry]:
        """The policies of a kind that can be used, as they were registered, the built-in ones first."""
        kind_named(kind)
        mine = (entry for entry in self._entries if entry.kind == kind and not entry.hooked)
        return [entry for entry in mine if entry.state == "ok"]

    def entry(self, kind: str, name: str) -> PluginEntry:
        """Raises UnknownPlugin, or PluginError for one that is broken or offered twice."""
        for entry in self._entries:
            if (entry.kind, entry.name) == (kind, name) and not entry.hooked:
                if entry.state != "ok":
                    raise entry.fault()
                return entry
        raise self._unknown(kind, name)

    def options(self, kind: str, name: str) -> list[Option]:
        """What may follow the name, as ``name:option=value``."""
        return PluginFactory.of(self.entry(kind, name)).options.describe()

    # -------------------------------------------------------------- building

    @overload
    def create(self, kind: Literal["scheduler"], spec: str, **given: object) -> SchedulingPolicy: ...
    @overload
    def create(self, kind: Literal["kv"], spec: str, **given: object) -> KVBackend: ...
    @overload
    def create(self, kind: Literal["kv_eviction"], spec: str, **given: object) -> EvictionPolicy: ...
    @overload
    def create(self, kind: Literal["quantization"], spec: str, **given: object) -> Quantizer: ...
    @overload
    def create(self, kind: Literal["decoding"], spec: str, **given: object) -> Decoding: ...
    @overload
    def create(self, kind: Literal["length_predictor"], spec: str, **given: object) -> LengthPredictor: ...
    @overload
    def create(self, kind: Literal["admission"], spec: str, **given: object) -> AdmissionPolicy: ...
    @overload
    def create(self, kind: Literal["observer"], spec: str, **given: object) -> Observer: ...
    @overload
    def create(self, kind: Literal["logits_processor"], spec: str, **given: object) -> LogitsProcessor: ...
    @overload
    def create(self, kind: Literal["proposer"], spec: str, **given: object) -> Proposer: ...
    @overload
    def create(self, kind: Literal["pooling"], spec: str, **given: object) -> Pooling: ...
    @overload
    def create(self, kind: Literal["router"], spec: str, **given: object) -> Router: ...
    @overload
    def create(self, kind: Literal["launcher"], spec: str, **given: object) -> Launcher: ...
    @overload
    def create(self, kind: Literal["model"], spec: str, **given: object) -> ModelFamily: ...
    @overload
    def create(self, kind: str, spec: str, **given: object) -> object: ...
    def create(self, kind: str, spec: str, **given: object) -> object:
        """Build what `spec` (``name:option=value,…``) says.

        `given` are options that come from flags of their own, such as ``block_size``; None is not given.
        Raises ConfigError for what the user got wrong, PluginError for what the plugin did.
        """
        parsed = _parsed(kind, spec)
        factory = PluginFactory.of(self.entry(kind, parsed.name))  # the plugin's class, imported
        arguments = factory.arguments(parsed.options, given, self.create)
        built = factory.build(arguments)  # calls the class
        name_plugin(built, factory.entry.title)
        self._warn()
        return built

    def check(self, kind: str, spec: str, **given: object) -> None:
        """Raise what `create` would, as far as can be told without building."""
        parsed = _parsed(kind, spec)
        PluginFactory.of(self.entry(kind, parsed.name)).arguments(parsed.options, given, self.create)

    def builds(self, architecture: str) -> bool:
        """Says whether some family claims an architecture of ``config.json``."""
        return architecture in self._architectures()

    def family(self, architecture: str) -> ModelFamily:
        """The family that builds an architecture of ``config.json``. Raises ModelError if none does."""
        supported = self._architectures()
        names = supported.get(architecture, [])
        if len(names) > 1:
            titles = " and ".join(self.entry("model", name).title for name in names)
            raise PluginError(f"{architecture} is built by {titles}; uninstall all but one")
        if not names:
            listed = ", ".join(sorted(supported)) or "none"
            raise ModelError(
                f"config.json: no model family builds {architecture!r}; supported: {listed}"
                f"{did_you_mean(architecture, supported)}{self._broken_note()}"
            )
        return self.create("model", names[0])

    def logits_processors(self, specs: Iterable[str] = ()) -> list[tuple[str, LogitsProcessor]]:
        """Every logits processor, built, and its title: ours as they are registered, then the others by name.

        specs: those with options, as ``NAME:option=value,…``. Raises ConfigError or PluginError where one
        cannot be: they are all active, so each is asked for.
        """
        given: dict[str, str] = {}
        for spec in specs:
            name = self.entry("logits_processor", _parsed("logits_processor", spec).name).name
            if name in given:
                raise ConfigError(f"logits_processor {name!r} has options twice: {given[name]} and {spec}")
            given[name] = spec
        entries = self.usable("logits_processor")
        entries.sort(key=lambda e: "" if e.distribution == PROJECT else e.name)
        built = [
            (entry, self.create("logits_processor", given.get(entry.name, entry.name))) for entry in entries
        ]
        _check_extra_args(built)
        return [(entry.title, processor) for entry, processor in built]

    def observers(self) -> dict[str, list[WatchingHook]]:
        """Every function that is called because a plugin has it, by the name of its hook."""
        hooks = [entry for entry in self._entries if entry.kind == OBSERVER_KIND and entry.hooked]
        watching = [entry for entry in hooks if entry.state == "ok"]
        return {
            hook: [WatchingHook(e.title, e.resolve()) for e in watching if e.name.endswith(f".{hook}")]
            for hook in OBSERVER_HOOKS
        }

    def _architectures(self) -> dict[str, list[str]]:
        """Names of families, by architecture. A family that cannot be imported only warns."""
        found: dict[str, list[str]] = {}
        for name in self.names("model"):
            try:
                factory = self.entry("model", name).resolve()
            except PluginError as error:
                logger.warning("%s", error)
                continue
            for architecture in getattr(factory, "architectures", ()):  # a class attribute
                found.setdefault(architecture, []).append(name)
        return found

    # -------------------------------------------------------------- what is wrong

    def _unknown(self, kind: str, name: str) -> ConfigError:
        for entry in self._entries:
            if entry.kind == UNKNOWN_KIND and name in (entry.name, entry.distribution):
                return entry.fault()
        known = self.names(kind)
        listed = ", ".join(known) or "none"
        if not any(entry.state == "ok" for entry in self._entries):
            listed = "none (is turnout itself installed? its own come by an entry point)"
        return UnknownPlugin(
            f"no {kind} is called {shortened(name)}; known: {listed}{did_you_mean(name, known)}"
            f"{self._broken_note()}"
        )

    def _broken_note(self) -> str:
        broken = [entry for entry in self._entries if entry.state in ("broken", "disabled")]
        lines = dict.fromkeys(f"\nnot loaded: {entry.origin}: {entry.error}" for entry in broken)
        return "".join(lines)

    def _warn(self) -> None:
        """Once, and only where policies are built: a listing shows the broken ones itself."""
        if not self._warned:
            self._warned = True
            for entry in self._entries:
                if entry.state in ("broken", "duplicate"):
                    logger.warning("%s is ignored: %s", entry.title, entry.error)


def _parsed(kind: str, spec: str) -> PluginSpec:
    with naming(kind):
        return PluginSpec.parse(spec)


def _check_extra_args(built: Iterable[tuple[PluginEntry, LogitsProcessor]]) -> None:
    """Refuses two processors that take an extra argument of one name: both would act on it."""
    takers: dict[str, PluginEntry] = {}
    for entry, processor in built:
        for name in processor.extra_args:
            other = takers.setdefault(name, entry)
            if other is not entry:
                raise PluginError(
                    f"{other.title} and {entry.title} both take the extra argument {name!r}; have one "
                    f"renamed, or leave one out{_disabling([other, entry])}"
                )


def _disabling(entries: Iterable[PluginEntry]) -> str:
    """How to leave out those of `entries` that can be: ours cannot."""
    theirs = dict.fromkeys(entry.distribution for entry in entries if entry.distribution != PROJECT)
    return ": " + " or ".join(f"--disable-plugin {name}" for name in theirs) if theirs else ""


def _marking_duplicates(entries: Iterable[PluginEntry]) -> list[PluginEntry]:
    entries = list(entries)
    offers: dict[tuple[str, str], list[PluginEntry]] = {}
    for entry in entries:
        if entry.kind != UNKNOWN_KIND:
            offers.setdefault((entry.kind, entry.name), []).append(entry)
    return [_marked(entry, offers.get((entry.kind, entry.name), [])) for entry in entries]


def _marked(entry: PluginEntry, offers: list[PluginEntry]) -> PluginEntry:
    if len(offers) < 2:
        return entry
    origins = " and by ".join(str(offer.origin) for offer in offers)
    return replace(
        entry,
        state="duplicate",
        error=f"the name is offered by {origins}; uninstall one, have it renamed, or leave its plugin "
        f"out{_disabling(offers)}",
    )
