"""How a policy is named on the command line: ``NAME`` or ``NAME:option=value,option=value``.

::

    spec    NAME [ ":" option "=" value { "," option "=" value } ]
    NAME    letters, digits, "_", "-", "."
    option  letters, digits, "_", "-"        a "-" is read as "_"
    value   anything without a comma, or anything between two ' or two " signs

Only the first ``:`` and each option's first ``=`` separate, so a value may contain both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from turnout.core.errors import ConfigError, shortened

__all__ = ["NAME", "PluginSpec", "parse_options"]

NAME = re.compile(r"[\w.-]+", re.ASCII)
_OPTION = re.compile(r"""\s*([A-Za-z_][\w-]*)\s*=\s*("[^"]*"|'[^']*'|(?!['"])[^,]*?)\s*(,|$)""", re.ASCII)
_FORM = "expected NAME or NAME:option=value,option=value, a value with commas in quotes"


@dataclass(frozen=True)
class PluginSpec:
    """A policy's name and the options given to it, as text still."""

    name: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> PluginSpec:
        """Raises ConfigError where `text` does not follow the grammar."""
        name, colon, rest = text.strip().partition(":")
        if not NAME.fullmatch(name) or (colon and not rest.strip()):
            raise ConfigError(f"{shortened(text)} does not name a policy; {_FORM}")
        return cls(name, parse_options(text, rest))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> PluginSpec:
        """From a config file's ``{name: ljf, aging: 2.0}``; an option that is None is not given."""
        given = {key: value for key, value in mapping.items() if value is not None}
        options = {str(key).replace("-", "_"): value for key, value in given.items()}
        name = options.pop("name", None)
        if name is None:
            raise ConfigError(f"{shortened(dict(mapping))} does not name a policy; expected a key 'name'")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ConfigError(f"{shortened(name)} is not a policy's name; options are given apart from it")
        return cls(name, {key: _as_text(value) for key, value in options.items()})

    def __str__(self) -> str:
        if not self.options:
            return self.name
        return f"{self.name}:" + ",".join(f"{key}={_quoted(value)}" for key, value in self.options.items())


def parse_options(text: str, rest: str) -> dict[str, str]:
    """What `rest`, which follows the name and the colon in `text`, says.

    Raises ConfigError where it does not follow the grammar.
    """
    options: dict[str, str] = {}
    position, more = 0, bool(rest)
    while more:
        match = _OPTION.match(rest, position)
        if match is None:
            place = shortened(rest[position:])
            raise ConfigError(f"{shortened(text)} cannot be read from {place} on; {_FORM}")
        key, value = match[1].replace("-", "_"), match[2]
        if key in options:
            raise ConfigError(f"{shortened(text)} gives the option {shortened(key)} twice")
        options[key] = value[1:-1] if value[:1] in ("'", '"') else value
        position, more = match.end(), match[3] == ","
    return options


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _quoted(value: str) -> str:
    if not re.search(r"""[,'"]|^\s|\s$""", value):
        return value
    quote = "'" if '"' in value else '"'
    if quote in value:
        raise ConfigError(f"the option value {shortened(value)} contains both kinds of quotes; use one kind")
    return f"{quote}{value}{quote}"
