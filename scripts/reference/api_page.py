"""docs/reference/api.md: every path with its parameters, answers and models, from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnout.scripts.reference.tables import code, table
from turnout.server.app import ROUTES
from turnout.server.http.openapi.document import document, endpoints
from turnout.server.http.openapi.page import form_of

Schema = dict[str, Any]


def written() -> str:
    """The page, without its heading."""
    return "\n\n".join(_parts(document(endpoints(ROUTES))))


def _parts(api: Schema) -> Iterator[str]:
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            yield f"## {method.upper()} {path}"
            yield from _operation(operation)
    yield "## Requests and answers"
    for name, schema in api["components"]["schemas"].items():
        yield f"### {name}"
        if "description" in schema:
            yield " ".join(schema["description"].split())
        if schema.get("properties"):
            yield _fields(schema)


def _operation(operation: Schema) -> Iterator[str]:
    yield f"{operation['summary']}. {operation.get('description', '')}".strip()
    if parameters := operation.get("parameters"):
        rows = [
            (code(each["name"]), _form(each["schema"]), each.get("description", "In the path."))
            for each in parameters
        ]
        yield table(("parameter", "type", "meaning"), rows)
    for takes in _contents(operation.get("requestBody", {})):
        yield f"Takes {takes}."
    answers = dict(operation["responses"])
    if "200" in answers:
        yield f"Answers {' or '.join(_contents(answers.pop('200')))}."
    statuses = ", ".join(answers)
    (error, *_) = _contents(answers["400"])
    yield f"Errors: {statuses}, each {error}."


def _contents(body: Schema) -> list[str]:
    return [f"{_form(its['schema'])} as {code(media)}" for media, its in body.get("content", {}).items()]


def _fields(schema: Schema) -> str:
    required = schema.get("required", [])
    rows = [
        (code(name), _form(its) + (", required" if name in required else ""), its.get("description", ""))
        for name, its in schema["properties"].items()
    ]
    return table(("field", "type", "meaning"), rows)


def _form(schema: Schema) -> str:
    schema = schema.get("properties", {}).get("data", {}).get("contentSchema", schema)  # of an event
    name = form_of(schema)
    return f"[{name}](#{name.lower()})" if "$ref" in schema else name
