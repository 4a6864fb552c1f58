"""Reads a file of keys: a key a line, or a YAML or JSON list with names and limits.

::

    - name: search
      key: 6b1f…
      requests-in-flight: 8
      requests-per-minute: 600
      tokens-per-minute: 100000
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turnout.core.api_keys import sendable_key
from turnout.core.errors import ConfigError, did_you_mean

__all__ = ["KeyEntry", "read_key_file", "valid_key"]

LIST_BEGINS = ("[", "{", "- ", "--- ")
"""How the first line of a list in YAML or JSON begins."""


class KeyEntry(BaseModel):
    """A key, and what it may do."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: str = Field(min_length=1)
    name: str | None = Field(None, min_length=1, max_length=64)
    requests_in_flight: int | None = Field(None, gt=0)
    requests_per_minute: int | None = Field(None, gt=0)
    tokens_per_minute: int | None = Field(None, gt=0)


def valid_key(key: str, given: str) -> str:
    """Returns a key as clients send it. Raises ConfigError as `sendable_key` does, and for an empty key."""
    if not (key := sendable_key(key, given)):
        raise ConfigError(f"the key ({given}) is empty; give one, or none at all")
    return key


def read_key_file(path: str) -> list[KeyEntry]:
    """The keys of a file. Raises ConfigError, whose message never has a key."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"cannot read the key file {path}: {reason}") from None
    content = _structure(path, text)
    entries = _lines(path, text) if content is None else _listed(path, content)
    if not entries:
        raise ConfigError(f"the key file {path} has no key: expected is a key a line, or a YAML list of keys")
    return entries


def _structure(path: str, text: str) -> list[object] | dict[object, object] | None:
    """The list or mapping that a file holds; None: it has a key a line, and a key may be no YAML.

    Raises ConfigError for a list that breaks off or has another fault: its lines are no keys.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        first = next(_meant(text), "")
        if first.startswith(LIST_BEGINS) or first in ("-", "---"):
            mark = getattr(error, "problem_mark", None)
            line = "" if mark is None else f", line {mark.line + 1}"
            raise ConfigError(
                f"the key file {path}{line}: begins as a list, and is no YAML or JSON"
            ) from None
        return None
    return content if isinstance(content, list | dict) else None


def _meant(text: str) -> Iterator[str]:
    """Lines but empty ones and those that begin with ``#``."""
    lines = (line.strip() for line in text.splitlines())
    return (line for line in lines if line and not line.startswith("#"))


def _lines(path: str, text: str) -> list[KeyEntry]:
    lines = enumerate(_meant(text), 1)
    return [KeyEntry(key=valid_key(line, f"{path}, key {number}")) for number, line in lines]


def _listed(path: str, content: object) -> list[KeyEntry]:
    if isinstance(content, dict):
        raise ConfigError(f"the key file {path} is a mapping; expected is a list, whose items have a 'key'")
    assert isinstance(content, list)
    return [_entry(path, number, item) for number, item in enumerate(content, 1)]


def _entry(path: str, number: int, item: object) -> KeyEntry:
    if isinstance(item, str):
        item = {"key": item}
    if not isinstance(item, dict):
        raise ConfigError(f"{path}, key {number}: expected is text, or a mapping with a 'key'")
    try:
        entry = KeyEntry(**{str(name).replace("-", "_"): value for name, value in item.items()})
        return entry.model_copy(update={"key": valid_key(entry.key, f"{path}, key {number}")})
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
    name = ".".join(map(str, problem["loc"]))
    known = [field.replace("_", "-") for field in KeyEntry.model_fields]
    if problem["type"] == "extra_forbidden":
        hint = did_you_mean(name.replace("_", "-"), known)
        raise ConfigError(f"{path}, key {number}: unknown field {name!r}; known: {', '.join(known)}{hint}")
    raise ConfigError(f"{path}, key {number}: {name.replace('_', '-')}: {problem['msg']}")
