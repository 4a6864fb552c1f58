"""What an endpoint takes and answers, said where its handler is defined, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from turnout.server.http.paging import DEFAULT, MOST

__all__ = [
    "ARM",
    "EVENTS",
    "JSON",
    "MODEL",
    "STORAGE",
    "Operation",
    "Parameter",
    "fields",
    "operation",
    "operation_of",
    "paging",
]

Handler = TypeVar("Handler", bound=Callable[[Request], Awaitable[Response]])
JSON = "application/json"
EVENTS = "text/event-stream"
ANYTHING: type = dict[str, Any]
_OPERATIONS: dict[object, Operation] = {}


@dataclass(frozen=True)
class Parameter:
    """A parameter in the query."""

    name: str
    description: str
    type: str = "string"
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    default: float | None = None


@dataclass(frozen=True)
class Operation:
    """What the schema of an endpoint is made of, beside its path."""

    body: type[BaseModel] | None = None
    """None: it takes no body."""
    answer: Any = ANYTHING
    """A struct, or another type that msgspec knows; None: the answer is not JSON."""
    media_type: str = JSON
    """Of the answer."""
    streams: str | None = None
    """The media type of the answer when the request has `stream`."""
    generates: bool = False
    """It needs the model: the engine may be full or gone."""
    parameters: tuple[Parameter, ...] = ()
    statuses: Mapping[int, str] = field(default_factory=dict)
    """Further statuses, and when they come."""
    form: Mapping[str, Any] | None = None
    """The schema of a body as `multipart/form-data`."""
    refused: bool = False
    """It is known, and always answers with an error."""


MODEL = Parameter("model", "Name of the model, where several are served.")
ARM = Parameter("arm", "Name of the arm, where a live test has two.")
STORAGE = {507: "The disk is full, a bound is reached, or the server's file cannot be used."}


def operation(**described: Any) -> Callable[[Handler], Handler]:
    """Describes a handler by the fields of an `Operation`."""

    def describe(handler: Handler) -> Handler:
        _OPERATIONS[handler] = Operation(**described)
        return handler

    return describe


def operation_of(handler: object) -> Operation:
    """Raises KeyError for a handler that is not described."""
    return _OPERATIONS[handler]


def paging(most: int = MOST, default: int = DEFAULT) -> tuple[Parameter, ...]:
    """The parameters of a `Page` of these bounds."""
    told = f"Most items of the page, from 1 to {most:,}; {default:,} unless given."
    return (
        Parameter("limit", told, "integer", least=1, most=most, default=default),
        Parameter("after", "The id of the last item of the page before."),
        Parameter("order", "`desc`, the newest first, unless given.", choices=("asc", "desc")),
    )


def fields(name: str, /, **types: Any) -> type[msgspec.Struct]:
    """A struct for an answer that is written by hand."""
    return msgspec.defstruct(name, list(types.items()), module="answers")
