"""Typed reading of ``config.json``; each error names the key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from turnout.core.errors import ModelError, Unsupported

__all__ = ["ConfigReader"]

Choice = TypeVar("Choice", str, int)

MOST = 2**40
"""More than any number that a model needs."""


class ConfigReader:
    """Reads keys of a known type. A key that is null counts as absent: checkpoints write both."""

    def __init__(self, config: Mapping[str, Any], where: str = "config.json") -> None:
        self.config = config
        self.where = where

    def integer(self, key: str, default: int | None = None, *, least: int = 1, most: int = MOST) -> int:
        """An integer from `least` to `most`."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._wrong(
                key, value, "a positive integer" if least == 1 else f"an integer from {least} on"
            )
        if value > most:
            raise self._wrong(key, value, f"at most {most:,}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number; an integer stays an integer."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST:
            raise self._wrong(key, value, f"a positive number, at most {MOST:,}")
        return value

    def any_number(self, key: str, default: float | None = None) -> float:
        """A finite number: 0 or a negative one, too."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST:
            raise self._wrong(key, value, "a finite number")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def token_ids(self, key: str) -> list[int]:
        """A token id or a list of token ids, as a list; empty if absent."""
        value = self._value(key, [])
        ids: list[Any] = value if isinstance(value, list) else [value]
        if not all(type(token) is int for token in ids):
            raise self._wrong(key, value, "an integer or a list of integers")
        return ids

    def each_of(self, key: str, among: Collection[Choice], count: int) -> tuple[Choice, ...]:
        """A list of `count` values, each one of `among`; empty if absent."""
        value = self._value(key, [])
        if not isinstance(value, list) or not all(each in among for each in value):
            raise self._wrong(key, value, f"a list of {', '.join(map(repr, among))}")
        if value and len(value) < count:
            raise self._wrong(key, value, f"a list of {count} values")
        return tuple(value[:count])

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers; empty if absent."""
        value = self._value(key, [])
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise self._wrong(key, value, "a list of integers")
        return tuple(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of positive numbers, which is not empty."""
        value = self._value(key)
        right = isinstance(value, list) and value
        if not right or not all(type(each) in (int, float) and 0 < each <= MOST for each in value):
            raise self._wrong(key, value, "a list of positive numbers")
        return tuple(value)

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object; empty if absent."""
        value = self._value(key, {})
        if not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object")
        return value

    def has(self, key: str) -> bool:
        return self.config.get(key) is not None

    def reject(self, key: str, because: str) -> Unsupported:
        """The error for a well-formed value that is not supported."""
        value = _short(self.config.get(key))
        return Unsupported(f"{self.where}: {key} = {value} is not supported: {because}")

    def _value(self, key: str, default: Any = None) -> Any:
        value = self.config.get(key)
        if value is not None:
            return value
        if default is None:
            raise ModelError(f"{self.where}: {key!r} is missing; is this the folder of a language model?")
        return default

    def _wrong(self, key: str, value: object, expected: str) -> ModelError:
        return ModelError(f"{self.where}: {key} = {_short(value)} should be {expected}")


def _short(value: object) -> str:
    """A value for a message, shortened: an attacker's can be as long as the file."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
