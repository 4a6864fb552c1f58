"""The fields that ask for structured output: OpenAI's ``response_format``, vLLM's old and new fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from turnout.core.errors import RequestError
from turnout.core.types.structured_outputs import KINDS, StructuredOutputs

__all__ = ["StructuredRequest"]


FIELDS = (
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
)


class StructuredRequest(BaseModel):
    """The fields, of which only one may be given, since all ask for the same."""

    model_config = ConfigDict(strict=True)

    response_format: dict[str, Any] | None = None
    """[The form of the answer](#structured-output), as OpenAI gives it."""
    structured_outputs: dict[str, Any] | None = None
    """vLLM's. [The same](#structured-output)."""
    guided_json: Any = None
    """vLLM's, older. [The same](#structured-output) by a schema."""
    guided_regex: str | None = None
    """vLLM's, older. [The same](#structured-output)."""
    guided_choice: Annotated[list[str], Field(fail_fast=True)] | None = None
    """vLLM's, older. [The same](#structured-output)."""
    guided_grammar: str | None = None
    """vLLM's, older. [The same](#structured-output)."""

    @property
    def structured_output(self) -> StructuredOutputs | None:
        """The structured output that is asked for. Raises RequestError for a field that makes no sense."""
        parsed = {name: self._parsed(name) for name in FIELDS if getattr(self, name) is not None}
        given = [name for name, output in parsed.items() if output is not None]
        if len(given) > 1:
            raise RequestError(f"{' and '.join(given)} are ways to ask for the same; give one", given[1])
        return parsed[given[0]] if given else None

    @property
    def structured_field(self) -> str:
        """The field in which a valid request asks for structured output; by default vLLM's new one."""
        given = (name for name in FIELDS if getattr(self, name) is not None and self._parsed(name))
        return next(given, "structured_outputs")

    def _parsed(self, name: str) -> StructuredOutputs | None:
        value = getattr(self, name)
        try:
            if name == "response_format":
                return _by_response_format(value)
            if name == "structured_outputs":
                return _by_structured_outputs(value)
            return StructuredOutputs(**{name.removeprefix("guided_"): value})
        except RequestError as error:
            error.param = name
            raise


def _by_response_format(value: Mapping[str, Any]) -> StructuredOutputs | None:
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return _any_object_or(value.get("schema"))
    if kind != "json_schema":
        raise RequestError(
            f"response_format.type must be 'text', 'json_object' or 'json_schema', not {kind!r}"
        )
    described = value.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise RequestError("response_format.json_schema.schema must be an object")
    return StructuredOutputs(json=schema)


def _any_object_or(schema: object) -> StructuredOutputs:
    """Any object; or one by a schema, as llama.cpp has it."""
    if schema is None:
        return StructuredOutputs(json_object=True)
    if not isinstance(schema, dict):
        raise RequestError("response_format.schema must be an object")
    return StructuredOutputs(json=schema)


def _by_structured_outputs(value: Mapping[str, Any]) -> StructuredOutputs:
    known = {name: item for name, item in value.items() if name in KINDS}
    for name in value.keys() - known.keys():
        if value[name] not in (None, False):
            raise RequestError(f"structured_outputs.{name} is not supported")
    return StructuredOutputs(**known)
