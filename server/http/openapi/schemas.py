"""JSON schemas of requests and answers, with what their docstrings say of each field."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from turnout.server.http.openapi.docstrings import field_docstrings

__all__ = ["Schemas", "plain"]

Schema = dict[str, Any]
NULL: Schema = {"type": "null"}
PLACE = "#/components/schemas/"
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Schemas:
    """The schemas of all models, each by its name."""

    def __init__(self, requests: Iterable[type[BaseModel]], answers: Iterable[Any]) -> None:
        self.components: dict[str, Schema] = {}
        self._requests = self._add_requests(sorted(set(requests), key=lambda model: model.__name__))
        kinds = list(answers)
        schemas, components = msgspec.json.schema_components(kinds, ref_template=PLACE + "{name}")
        taken = components.keys() & self.components.keys()
        renamed = {PLACE + name: f"{PLACE}{name}Answer" for name in taken}
        for name, schema in components.items():
            self.components[f"{name}Answer" if name in taken else name] = _renamed(schema, renamed)
        self._answers = [
            (kind, _renamed(schema, renamed)) for kind, schema in zip(kinds, schemas, strict=True)
        ]
        for kind, schema in self._answers:
            _untag(self.components, schema, kind)
            _describe(self.components, schema, kind)

    def _add_requests(self, models: list[type[BaseModel]]) -> dict[type[BaseModel], Schema]:
        found, schema = models_json_schema(
            [(model, "validation") for model in models], ref_template=PLACE + "{model}"
        )
        self.components |= schema.get("$defs", {})
        refs = {model: found[model, "validation"] for model in models}
        for model, ref in refs.items():
            _describe(self.components, ref, model)
            _allow_null(self.components, ref)
        return refs

    def of_request(self, model: type[BaseModel]) -> Schema:
        return self._requests[model]

    def of_answer(self, kind: Any) -> Schema:
        return next(schema for known, schema in self._answers if known is kind)


def _untag(components: dict[str, Schema], ref: Schema, kind: Any) -> None:
    """Takes the tag away that a message between server and engine has, and no answer to a client."""
    config = getattr(kind, "__struct_config__", None)
    if config is not None and config.tag is not None:
        schema = components[ref["$ref"].removeprefix(PLACE)]
        del schema["properties"][config.tag_field]
        schema["required"].remove(config.tag_field)


def _describe(components: dict[str, Schema], ref: Schema, kind: Any) -> None:
    """Gives the fields of a model what its docstrings say."""
    schema = components.get(str(ref.get("$ref", "")).removeprefix(PLACE))
    if schema is None or not isinstance(kind, type) or not kind.__module__.startswith("turnout."):
        return
    for name, text in field_docstrings(kind).items():
        if name in schema.get("properties", {}):
            schema["properties"][name]["description"] = plain(text)


def _allow_null(components: dict[str, Schema], ref: Schema) -> None:
    """Lets a body's optional fields be null, which `read_body` takes for not given."""
    schema = components[ref["$ref"].removeprefix(PLACE)]
    for name, its in schema.get("properties", {}).items():
        if name in schema.get("required", ()):
            continue
        if "anyOf" not in its:
            kind = {key: its.pop(key) for key in list(its) if key not in ("title", "default", "description")}
            if not kind:  # anything
                continue
            its["anyOf"] = [kind]
        if NULL not in its["anyOf"]:
            its["anyOf"].append(NULL)


def plain(text: str) -> str:
    """A docstring as a line of text; its links lead to pages that are not served."""
    return LINK.sub(r"\1", " ".join(text.split()))


def _renamed(schema: Any, names: dict[str, str]) -> Any:
    if isinstance(schema, dict):
        return {
            key: names.get(value, value) if key == "$ref" else _renamed(value, names)
            for key, value in schema.items()
        }
    return [_renamed(item, names) for item in schema] if isinstance(schema, list) else schema
