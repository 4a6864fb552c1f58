"""The arms of a comparison: each a name and what of an engine's configuration it changes.

::

    arm     NAME [ ":" field "=" value { "," field "=" value } ]
    NAME    letters of any script, digits, "_", "-", "."
    field   a field of `EngineConfig`, which is a flag of ``serve``, with "-" or "_"
    value   anything without a comma, or anything between two ' or two " signs; nothing: the default

Only the first ``:`` and each field's first ``=`` separate, so ``long:scheduler=ljf:aging=2`` means what it
looks like. A policy with several options is quoted: ``long:scheduler="ljf:aging=2,by=prompt",kv=paged``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import ConfigError, did_you_mean
from turnout.core.registry.kinds import POLICY_KINDS
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import parse_options
from turnout.runner.choices import check_policies

__all__ = ["Arm", "about_arm", "check_arms", "parse_arms"]

_NAME = re.compile(r"\w[\w.-]*")
_FORM = "expected NAME or NAME:field=value,field=value, such as long:scheduler=ljf"


@dataclass(frozen=True)
class Arm:
    """One way to serve, to be compared with others."""

    name: str
    changes: Mapping[str, str]
    """Fields of the configuration, by name, with what was given for them; "" for the default."""
    config: EngineConfig
    """All of it: what is common to the arms, and the changes over that."""

    def __str__(self) -> str:
        """As a reader of a report wants it: ``long (scheduler=ljf:aging=2)``."""
        changes = ", ".join(f"{field}={value or 'default'}" for field, value in self.changes.items())
        return f"{self.name} ({changes})" if changes else self.name


def parse_arms(texts: Iterable[str], common: EngineConfig) -> tuple[Arm, ...]:
    """An arm for each text, over what is set in `common`.

    Raises ConfigError, in one line that names the arm, for anything that cannot be used as given.
    """
    arms: dict[str, Arm] = {}
    for text in texts:
        arm = _parse_arm(text, common)
        if arm.name in arms:
            raise ConfigError(f"two arms are called {arm.name!r}; give each a name of its own")
        arms[arm.name] = arm
    return tuple(arms.values())


def check_arms(arms: Iterable[Arm]) -> None:
    """Find misspelt policies and options before anything heavy is loaded; raises ConfigError."""
    for arm in arms:
        try:
            check_policies(Registry.of(arm.config), arm.config)
        except ConfigError as error:
            raise about_arm(arm.name, error) from None


def _parse_arm(text: str, common: EngineConfig) -> Arm:
    name, colon, rest = text.strip().partition(":")
    if not _NAME.fullmatch(name) or (colon and not rest.strip()):
        raise ConfigError(f"{text!r} does not name an arm; {_FORM}")
    try:
        changes = parse_options(text, rest)
        _check_fields(changes)
        kept = {
            key: value for key, value in common.model_dump(exclude_unset=True).items() if key not in changes
        }
        return Arm(
            name, changes, EngineConfig(**kept, **{key: value for key, value in changes.items() if value})
        )
    except ConfigError as error:
        raise about_arm(name, error) from None


def _check_fields(changes: Mapping[str, str]) -> None:
    known = [field.replace("_", "-") for field in EngineConfig.model_fields]
    for field in changes:
        if field not in EngineConfig.model_fields:
            shown = field.replace("_", "-")
            if field in ServerConfig.model_fields:
                raise ConfigError(
                    f"{shown!r} is an option of serve, but not of an engine, and an arm changes an engine's "
                    f"options{_quotes_missing(field, changes)}"
                )
            hint = did_you_mean(shown, known) or f"; known: {', '.join(known)}"
            raise ConfigError(
                f"no option of serve is called {shown!r}{hint}{_quotes_missing(field, changes)}"
            )


def _quotes_missing(field: str, changes: Mapping[str, str]) -> str:
    """For ``scheduler=ljf:aging=2,by=prompt``, where `by` was meant for the policy."""
    for kind, spec in changes.items():
        if kind == field:
            break
        if kind in POLICY_KINDS and ":" in spec:
            return f'; if it belongs to {spec.partition(":")[0]}, quote the whole: {kind}="{spec},{field}=…"'
    return ""


def about_arm(arm: str, error: ConfigError) -> ConfigError:
    """An error that names the arm, in one line."""
    return ConfigError(f"arm {arm!r}: {'; '.join(str(error).splitlines())}")
