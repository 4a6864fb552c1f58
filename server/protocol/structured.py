"""The ways to ask for structured output: OpenAI's ``response_format``, and vLLM's older and newer ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

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
    """The fields, all of them for one thing, so that only one may be given."""

    model_config = ConfigDict(strict=True)

    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: Any = None
    """An object, or its text."""
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    @property
    def form(self) -> StructuredOutputs | None:
        """What the engine is asked for. Raises RequestError for what cannot be meant."""
        forms = {name: self._form(name) for name in FIELDS if getattr(self, name) is not None}
        given = [name for name, form in forms.items() if form is not None]
        if len(given) > 1:
            raise RequestError(f"{' and '.join(given)} are ways to ask for the same; give one", given[1])
        return forms[given[0]] if given else None

    @property
    def form_field(self) -> str:
        """The field in which a valid request asks for it; the usual one where it does not."""
        given = (name for name in FIELDS if getattr(self, name) is not None and self._form(name))
        return next(given, "structured_outputs")

    def _form(self, name: str) -> StructuredOutputs | None:
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


def _by_response_format(asked: Mapping[str, Any]) -> StructuredOutputs | None:
    kind = asked.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return StructuredOutputs(json_object=True)
    if kind != "json_schema":
        raise RequestError(
            f"response_format.type must be 'text', 'json_object' or 'json_schema', not {kind!r}"
        )
    described = asked.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise RequestError("response_format.json_schema.schema must be an object")
    return StructuredOutputs(json=schema)


def _by_structured_outputs(asked: Mapping[str, Any]) -> StructuredOutputs:
    known = {name: value for name, value in asked.items() if name in KINDS}
    for name in asked.keys() - known.keys():
        if asked[name] not in (None, False):
            raise RequestError(f"structured_outputs.{name} is not supported")
    return StructuredOutputs(**known)
