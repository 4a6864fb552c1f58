"""What a request offers a model to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from turnout.core.errors import RequestError
from turnout.text.output.argument_schemas import ArgumentSchemas, Shape

__all__ = ["Tool"]


@dataclass(frozen=True)
class Tool:
    """A tool that a model may call."""

    name: str
    parameters: Mapping[str, Any]
    """The JSON schema of its arguments, an object's."""
    strict: bool = False
    """Keywords of the schema that cannot be held are refused instead of ignored."""
    custom: bool = False
    """It stands for a custom tool, whose input is its one argument: see `custom_tools.py`."""

    @property
    def shapes(self) -> Sequence[Shape]:
        """The ways to write its arguments. Raises RequestError if there is none."""
        if not self.schemas.shapes:
            raise RequestError(f"the schema of the tool {self.name!r} allows no arguments at all", "tools")
        return self.schemas.shapes

    @cached_property
    def schemas(self) -> ArgumentSchemas:
        """Its schema, to be asked about parts of it."""
        return ArgumentSchemas(self.parameters)
