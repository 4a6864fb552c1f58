"""Which plugins a configuration asks for: by the field of their kind, or by flags that they declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, PluginError, did_you_mean, naming
from turnout.core.registry.entry import PluginEntry
from turnout.core.registry.kinds import POLICY_KINDS
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec

__all__ = ["PolicyChoice", "changed", "check_policies", "policy_choices"]

_FIELDS = EngineConfig.model_fields
OF_THE_SERVER = frozenset({"chat_template", "format"})
"""Fields by which the server's own process reads and writes text."""


class PolicyChoice(NamedTuple):
    """A plugin that a configuration asks for: its spec, and options from flags of their own."""

    spec: str
    given: Mapping[str, object]

    def __str__(self) -> str:
        """With all options in the spec."""
        parsed = PluginSpec.parse(self.spec)
        given = {name: _as_text(value) for name, value in self.given.items()}
        return str(PluginSpec(parsed.name, {**parsed.options, **given}))


def check_policies(registry: Registry, config: EngineConfig) -> None:
    """Find misspelt policies and options before anything heavy is loaded."""
    for kind in POLICY_KINDS:
        for spec, given in policy_choices(registry, config, kind):
            registry.create(kind, spec, **given)
    for spec in config.logits_processor:
        registry.check("logits_processor", spec)
    for spec in config.observer:  # not built: it may open a file
        registry.check("observer", spec)


def policy_choices(registry: Registry, config: EngineConfig, kind: str) -> list[PolicyChoice]:
    """The plugins of a kind that `config` asks for: the one in the kind's field last.

    Before it those that flags of their own bring in. Raises ConfigError for flags that nothing takes, and
    PluginError for a plugin, chosen or not, that declares a flag for no field of the configuration.
    """
    spec: str | None = getattr(config, kind)
    if spec is None:  # left to the backend
        return []
    with naming(kind):
        name = PluginSpec.parse(spec).name
    flagged = [entry for entry in registry.usable(kind) if entry.flags]
    _check_fields(flagged)
    chosen = [entry for entry in flagged if entry.name == name]
    given = {option: value for entry in chosen for option, value in _given_options(entry, config).items()}
    claimed = {flag.field for entry in chosen for flag in entry.flags}
    beside = []
    for entry in flagged:
        if entry in chosen:
            continue
        options = _given_options(entry, config, without=claimed)
        if not any(flag.chooses for flag in entry.flags):
            given |= options  # for the chosen plugin to take or to refuse
        elif any(flag.chooses and options.get(flag.option) for flag in entry.flags):
            beside.append(PolicyChoice(entry.name, options))
        else:
            _refuse_dependent(entry, options)
    return [*beside, PolicyChoice(spec, given)]


def changed(config: EngineConfig, changes: Mapping[str, object]) -> EngineConfig:
    """The configuration with other values of some fields; None: the default. Raises ConfigError."""
    if not changes:
        raise ConfigError(
            "nothing is to be changed; name an option of serve, such as scheduler or max_num_seqs"
        )
    for name in changes:
        if name not in _FIELDS:
            hint = did_you_mean(name, list(_FIELDS))
            raise ConfigError(f"no option of an engine is called {name!r}{hint}")
        if name in OF_THE_SERVER:
            raise ConfigError(f"{name} is for the server's own process; start another server with it")
    kept = {key: value for key, value in config.model_dump(exclude_unset=True).items() if key not in changes}
    given = {key: value for key, value in changes.items() if value is not None}
    new = EngineConfig(**kept, **given)
    check_policies(Registry.of(new), new)
    return new


def _check_fields(entries: Iterable[PluginEntry]) -> None:
    for entry in entries:
        for flag in entry.flags:
            if flag.field not in _FIELDS:
                raise PluginError(
                    f"{entry.title} declares a flag for {flag.field!r}, but EngineConfig has no such field; "
                    "correct the name where the plugin is registered, or leave the plugin out with "
                    f"--disable-plugin {entry.origin.plugin}{did_you_mean(flag.field, _FIELDS)}"
                )


def _given_options(
    entry: PluginEntry, config: EngineConfig, without: frozenset[str] | set[str] = frozenset()
) -> dict[str, Any]:
    """The entry's options that `config` has in fields of their own: those that differ from the default."""
    flags = [flag for flag in entry.flags if flag.field not in without]
    values = {flag.option: (getattr(config, flag.field), _FIELDS[flag.field].default) for flag in flags}
    return {option: value for option, (value, default) in values.items() if value != default}


def _refuse_dependent(entry: PluginEntry, options: Mapping[str, object]) -> None:
    """Raise ConfigError for the first of the options whose flag brings nothing in by itself."""
    choosing = " or ".join(flag.field for flag in entry.flags if flag.chooses)
    for flag in entry.flags:
        if flag.option in options and not flag.chooses:
            raise ConfigError(f"{flag.field}={options[flag.option]} {flag.alone}; give {choosing} too")


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
