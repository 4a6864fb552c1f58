"""Typed reading of ``quantization_config``; each error names the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from turnout.core.errors import ModelError

__all__ = ["Settings"]

Value = TypeVar("Value", int, str)


class Settings:
    def __init__(self, config: Mapping[str, Any], where: str = "quantization_config") -> None:
        self.config = config
        self.where = where

    def integer(self, key: str) -> int:
        value = self.config.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "an integer is expected")
        return value

    def one_of(self, key: str, known: Sequence[Value], default: Value | None = None) -> Value:
        value = self.config.get(key, default)
        for each in known:
            if value == each:
                return each
        raise self.wrong(key, f"supported: {', '.join(map(str, known))}")

    def refuse(self, key: str, what: str) -> None:
        if self.config.get(key):
            raise self.wrong(key, f"{what} are not supported")

    def wrong(self, key: str, expected: str) -> ModelError:
        return ModelError(f"config.json: {self.where}: {key} = {self.config.get(key)!r}; {expected}")
