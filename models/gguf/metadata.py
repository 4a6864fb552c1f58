"""Typed reading of a GGUF file's metadata; each error names the file and the key."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, overload

from turnout.core.errors import ModelError

__all__ = ["Metadata"]

Default = TypeVar("Default")
NEEDED: Final = object()
"""Stands for a default where there is none."""
SHOWN = 80
"""Characters of a value in a message: an attacker's can be as long as the file."""


class Metadata:
    """Reads the keys that begin with a prefix, such as ``llama.``.

    Raises ModelError for a key that is missing and has no default, and for a value of another type.
    """

    def __init__(self, path: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.path, self.prefix, self._values = path, prefix, values

    def has(self, key: str) -> bool:
        return self.prefix + key in self._values

    def names(self) -> list[str]:
        """Lists the keys without their prefix."""
        return [key.removeprefix(self.prefix) for key in self._values if key.startswith(self.prefix)]

    @overload
    def integer(self, key: str, *, least: int = 1) -> int: ...
    @overload
    def integer(self, key: str, default: Default, *, least: int = 1) -> int | Default: ...
    def integer(self, key: str, default: object = NEEDED, *, least: int = 1) -> object:
        """An integer, `least` or more."""
        expected = "a positive integer" if least == 1 else f"an integer of at least {least}"
        return self._read(key, default, lambda value: type(value) is int and value >= least, expected)

    @overload
    def number(self, key: str, *, signed: bool = False) -> float: ...
    @overload
    def number(self, key: str, default: Default, *, signed: bool = False) -> float | Default: ...
    def number(self, key: str, default: object = NEEDED, *, signed: bool = False) -> object:
        """A positive number, or any if it is `signed`; an integer stays an integer."""

        def fits(value: Any) -> bool:
            return type(value) in (int, float) and math.isfinite(value) and (signed or value > 0)

        return self._read(key, default, fits, "a number" if signed else "a positive number")

    @overload
    def text(self, key: str) -> str: ...
    @overload
    def text(self, key: str, default: Default) -> str | Default: ...
    def text(self, key: str, default: object = NEEDED) -> object:
        return self._read(key, default, lambda value: isinstance(value, str), "a text")

    @overload
    def flag(self, key: str) -> bool: ...
    @overload
    def flag(self, key: str, default: Default) -> bool | Default: ...
    def flag(self, key: str, default: object = NEEDED) -> object:
        return self._read(key, default, lambda value: isinstance(value, bool), "true or false")

    def texts(self, key: str) -> list[str]:
        """A list of texts; empty if absent."""
        return self._list(key, (str,), "a list of texts")

    def integers(self, key: str) -> list[int]:
        """A list of integers; empty if absent."""
        return self._list(key, (int,), "a list of integers")

    def numbers(self, key: str) -> list[float]:
        """A list of numbers; empty if absent."""
        return self._list(key, (int, float), "a list of numbers")

    def check_is(self, key: str, *values: object) -> None:
        """Raises ModelError for a value other than these, which change nothing; the key may be absent."""
        if self.has(key) and self._values[self.prefix + key] not in values:
            raise self.wrong(
                key,
                f"is not supported, only {' and '.join(map(str, values))}; take the safetensors checkpoint",
            )

    def wrong(self, key: str, expected: str) -> ModelError:
        """The error for a value that is not what it should be."""
        shown = repr(self._values.get(self.prefix + key))
        shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 3]}..."
        return ModelError(f"{self.path}: {self.prefix}{key} = {shown} {expected}")

    def _list(self, key: str, kinds: tuple[type, ...], expected: str) -> list[Any]:
        def fits(value: Any) -> bool:
            return isinstance(value, list) and all(type(each) in kinds for each in value)

        found = self._read(key, [], fits, expected)
        assert isinstance(found, list)
        return found

    def _read(self, key: str, default: object, fits: Callable[[Any], bool], expected: str) -> object:
        value = self._values.get(self.prefix + key, NEEDED)
        if value is NEEDED:
            if default is NEEDED:
                raise ModelError(
                    f"{self.path}: the metadata lacks {self.prefix}{key}; convert the model again"
                )
            return default
        if not fits(value):
            raise self.wrong(key, f"should be {expected}; convert the model again")
        return value
