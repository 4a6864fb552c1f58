"""The OpenAPI document of the server, made of its routes and of what their handlers say of themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from starlette.routing import BaseRoute, Route

from turnout.core.version import own_version
from turnout.server.http.access.auth import HEALTH, is_admin, is_open
from turnout.server.http.errors import AnthropicError, ErrorBody, OllamaError, error_kind
from turnout.server.http.openapi.operation import EVENTS, JSON, MODEL, Operation, Parameter, operation_of
from turnout.server.http.openapi.schemas import Schemas, plain

__all__ = ["Endpoint", "document", "endpoints"]

Schema = dict[str, Any]
TITLE = "Turnout"
WHAT = (
    "OpenAI's API, Anthropic's messages and Ollama's API, served by Turnout. Every response has the header "
    "`X-Request-Id`: the client's own, or one that the server makes."
)
ALWAYS = {
    400: "The request is not valid; the error names the field at fault.",
    408: "The request came too slowly.",
    431: "The headers are too large or too many.",
    500: "The error was unforeseen, or a plugin failed at this request.",
}
GENERATES = {
    404: "The model is not the served one, or what the request refers to is not there.",
    503: "The server is overloaded or shuts down, or its engine is gone.",
}
BODY = {
    413: "The body is too large.",
    415: "The body's media type is not the one that is expected.",
    503: "The bodies of all requests in flight take all memory there is for them.",
}
ADMINISTERS = {
    404: "What is asked for is not there.",
    409: "It is not possible as things stand.",
    503: "The engine is being replaced, or is gone.",
    504: "The engine took too long.",
}
NO_KEY = "A valid key is required."
NOT_ALLOWED = "The host, the page or the machine may not ask."
TOO_MANY = "A limit of the key or of the address is reached; `Retry-After` says when to try again."


class Endpoint(NamedTuple):
    """A route, as a key of a dictionary."""

    path: str
    methods: tuple[str, ...]
    handler: object


def endpoints(routes: Iterable[BaseRoute]) -> tuple[Endpoint, ...]:
    """What an application answers."""
    return tuple(
        Endpoint(route.path, tuple(sorted((route.methods or set()) - {"HEAD"})), route.endpoint)
        for route in routes
        if isinstance(route, Route)
    )


@cache
def document(served: tuple[Endpoint, ...]) -> Schema:
    """The document. Raises KeyError for an endpoint whose handler is not described."""
    operations = [(endpoint, operation_of(endpoint.handler)) for endpoint in served]
    answers = [each.answer for _, each in operations if each.answer is not None]
    schemas = Schemas(
        [each.body for _, each in operations if each.body is not None],
        [*_unique(answers), ErrorBody, AnthropicError, OllamaError],
    )
    paths: dict[str, Schema] = {}
    for endpoint, described in operations:
        path = re.sub(r":\w+}", "}", endpoint.path)
        for method in endpoint.methods:
            found = _operation(path, method, endpoint, described, schemas)
            paths.setdefault(path, {})[method.lower()] = found
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": own_version(), "description": WHAT},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _unique(kinds: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for kind in kinds:
        if not any(kind is known for known in found):
            found.append(kind)
    return found


def _operation(path: str, method: str, endpoint: Endpoint, described: Operation, schemas: Schemas) -> Schema:
    first, _, rest = (inspect.getdoc(endpoint.handler) or "").partition("\n\n")
    found: Schema = {
        "operationId": _name(method, path),
        "summary": plain(first).removesuffix("."),
        "tags": [_tag(path)],
        "responses": dict(_responses(path, method, described, schemas)),
    }
    if rest:
        found["description"] = plain(rest)
    if not is_open(path):
        found["security"] = [{"key": []}, {}]
    if parameters := [*_of_path(path), *map(_parameter, described.parameters)]:
        found["parameters"] = parameters
    if described.body is not None:
        content = {JSON: {"schema": schemas.of_request(described.body)}}
        found["requestBody"] = {"required": True, "content": content}
    if described.form is not None:
        content = {"multipart/form-data": {"schema": dict(described.form)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _name(method: str, path: str) -> str:
    return "_".join([method.lower(), *re.findall(r"\w+", path)])


def _tag(path: str) -> str:
    if is_admin(path):
        return "admin"
    if path.startswith("/api/"):
        return "Ollama"
    if path.startswith("/v1/messages"):
        return "Anthropic"
    return "OpenAI" if path.startswith("/v1/") else "server"


def _of_path(path: str) -> Iterator[Schema]:
    for name in re.findall(r"{(\w+)}", path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _parameter(parameter: Parameter) -> Schema:
    schema: Schema = {"type": parameter.type}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    bounds = {"minimum": parameter.least, "maximum": parameter.most, "default": parameter.default}
    schema |= {key: bound for key, bound in bounds.items() if bound is not None}
    return {"name": parameter.name, "in": "query", "description": parameter.description, "schema": schema}


def _responses(
    path: str, method: str, described: Operation, schemas: Schemas
) -> Iterator[tuple[str, Schema]]:
    if not described.refused:
        yield "200", {"description": "The answer.", "content": _content(described, schemas)}
    errors = {**_statuses(path, method, described), **described.statuses}
    kind = schemas.of_answer(error_kind(path))
    for status, when in sorted(errors.items()):
        of_health = path in HEALTH and status == 503  # which reports what is wrong in the same form
        schema = schemas.of_answer(described.answer) if of_health else kind
        yield str(status), {"description": when, "content": {JSON: {"schema": schema}}}


def _content(described: Operation, schemas: Schemas) -> Schema:
    if described.answer is None:
        return {described.media_type: {"schema": {"type": "string"}}}
    schema = schemas.of_answer(described.answer)
    if described.media_type == EVENTS:
        return {EVENTS: {"schema": _event(schema)}}
    content: Schema = {described.media_type: {"schema": schema}}
    if described.streams is not None:
        what = "server-sent events" if described.streams == EVENTS else "lines of JSON"
        told = f"With `stream`: {what}, as the text is generated."
        content[described.streams] = {"schema": {"description": told}}
    return content


def _event(schema: Schema) -> Schema:
    """A server-sent event, whose data are JSON of that schema."""
    data = {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
    return {"type": "object", "properties": {"event": {"type": "string"}, "data": data}, "required": ["data"]}


def _statuses(path: str, method: str, described: Operation) -> Mapping[int, str]:
    found = dict(ALWAYS)
    if path not in HEALTH:
        found[403] = NOT_ALLOWED
    if not is_open(path):
        found |= {401: NO_KEY, 429: TOO_MANY}
    if described.body is not None or described.form is not None:
        found |= BODY
    if MODEL in described.parameters:
        found[404] = "No model of this name is served."
    if "{" in path:
        found[404] = "There is none of this name."
    if is_admin(path):
        found |= ADMINISTERS
    if described.generates:
        found |= GENERATES
    return found
