"""One entry of a trace: its values, which may be missing, and its place in the file for error messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.core import limits
from turnout.core.errors import ConfigError

__all__ = ["TraceEntry"]


@dataclass(frozen=True)
class TraceEntry:
    """One line's fields, by name."""

    fields: Mapping[str, Any]
    path: Path
    line: int
    form: str
    """The trace's format, as messages name it."""

    def number(self, name: str) -> float:
        value = self.fields.get(name)
        try:
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self.fault(f"{name!r} should be a number, not {value!r:.60}")
        return number

    def seconds(self, name: str) -> float:
        """A time, at least 0."""
        if (time := self.number(name)) < 0:
            raise self.fault(f"{name!r} should be at least 0, not {time:g}")
        return time

    def milliseconds(self, name: str) -> float | None:
        """A time above 0; None where there is none."""
        if self.fields.get(name) is None:
            return None
        if (time := self.number(name)) <= 0:
            raise self.fault(f"{name!r} should be above 0, not {time:g}")
        return time

    def tokens(self, name: str) -> int:
        """A count of tokens, at least 0."""
        count = self.number(name)
        if count < 0 or count != int(count):
            raise self.fault(f"{name!r} should be a count, not {self.fields[name]!r:.60}")
        if count > limits.TRACE_TOKENS.most:
            raise self.fault(
                f"{name!r} should be at most {limits.TRACE_TOKENS.amount}, not {self.fields[name]!s:.60}"
            )
        return int(count)

    def text(self, name: str) -> str:
        """ "" where there is none."""
        value = self.fields.get(name)
        return "" if value is None else str(value).strip()

    def names(self, name: str) -> tuple[int, ...]:
        """Names of blocks, which are integers; none where the field is missing."""
        value = self.fields.get(name) or []
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise self.fault(f"{name!r} should be a list of integers, not {value!r:.60}")
        return tuple(value)

    def fault(self, message: str) -> ConfigError:
        return ConfigError(f"{self.path}, line {self.line}: {message} (read as {self.form})")
