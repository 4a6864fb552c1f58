"""Error responses in the form that OpenAI's clients expect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from turnout.core.errors import (
    ContextExceeded,
    Dropped,
    EngineError,
    EngineGone,
    Overloaded,
    RequestError,
    StorageError,
    TurnoutError,
)
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.records.record import note_error

__all__ = [
    "REQUEST_ID",
    "REQUEST_KEY",
    "AnthropicError",
    "ApiError",
    "ErrorBody",
    "OllamaError",
    "anthropic_error",
    "error_body",
    "error_code",
    "error_kind",
    "error_type",
    "of_anthropic",
    "ollama_error",
    "respond_to_disconnect",
    "respond_to_error",
]

REQUEST_ID = "X-Request-Id"
REQUEST_KEY = "turnout.request_id"
"""Where a request's scope has its name."""
NOT_FOUND = 404
TIMEOUT = 408
TOO_MANY = 429
MESSAGES = "/v1/messages"
"""Where Anthropic's API begins."""
MODELS = "/v1/models"
"""Where OpenAI's and Anthropic's clients ask for models."""
OLLAMA = "/api/"
"""Where Ollama's API begins."""
ANTHROPIC_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
CONTEXT_EXCEEDED = "context_length_exceeded"
"""OpenAI's code."""
PROMPT_TOO_LONG = "prompt is too long: "
"""How Anthropic's message begins then: by these words, clients know that they are to shorten it."""
LONGEST_MESSAGE = 2000
"""Characters; beyond them a message is cut off."""
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that has left, for the log alone."""


class ApiError(TurnoutError):
    """An error with its HTTP status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = headers


class ErrorDetails(msgspec.Struct):
    """What went wrong, in OpenAI's terms."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    """The body of an error response."""

    error: ErrorDetails


class OllamaError(msgspec.Struct):
    """The body of an error response of Ollama's API."""

    error: str


class AnthropicError(msgspec.Struct):
    """The body of an error response of Anthropic's API."""

    error: dict[str, Any]
    """`type`, `message` and, where clients look for a code, `details` with an `error_code`."""
    request_id: str | None = None
    type: str = "error"


def error_body(error: Exception) -> ErrorBody:
    """The body for an error. Details of an unexpected error stay in the log."""
    known = _known(error)
    param = None if known.param is None else _shortened(known.param)
    return ErrorBody(ErrorDetails(_shortened(str(known)), error_type(known.status), param, known.code))


def _shortened(text: str) -> str:
    """Cuts off a text that names what the client sent, which can be as long as a body."""
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def error_code(error: Exception) -> str:
    """One word for an error, which holds nothing of what the client sent."""
    known = _known(error)
    return known.code or error_type(known.status)


def error_type(status: int) -> str:
    """OpenAI's `type` of an error with this status."""
    if status == TIMEOUT:
        return "timeout_error"
    if status == TOO_MANY:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def anthropic_error(error: Exception, request_id: str | None = None) -> AnthropicError:
    """The body for an error in Anthropic's form."""
    known = _known(error)
    kind = ANTHROPIC_KINDS.get(known.status, "invalid_request_error" if known.status < 500 else "api_error")
    details = {} if known.code is None else {"details": {"error_code": known.code}}
    message = _shortened(f"{PROMPT_TOO_LONG if known.code == CONTEXT_EXCEEDED else ''}{known}")
    return AnthropicError({"type": kind, "message": message, **details}, request_id)


def ollama_error(error: Exception) -> OllamaError:
    """The body for an error in Ollama's form."""
    return OllamaError(_shortened(str(_known(error))))


async def respond_to_error(request: Request, error: Exception) -> Response:
    known = _misdirected(request, error) if isinstance(error, HTTPException) else _known(error)
    note_error(request.scope, error_code(known))
    headers = dict(known.headers or {})
    if id := request.scope.get(REQUEST_KEY):  # no middleware sees the answer to an unforeseen error
        headers[REQUEST_ID] = id
    return JsonResponse(_body(request, known), status_code=known.status, headers=headers)


def error_kind(path: str) -> type[ErrorBody] | type[AnthropicError] | type[OllamaError]:
    """The form of errors of the API that a path belongs to."""
    if path.startswith(MESSAGES):
        return AnthropicError
    return OllamaError if path.startswith(OLLAMA) else ErrorBody


def of_anthropic(request: Request) -> bool:
    """Whether a client of Anthropic's asks, whose list of models lies under the same path as OpenAI's."""
    path: str = request.scope.get("path", "")
    return path.startswith(MODELS) and "anthropic-version" in request.headers


def _body(request: Request, error: ApiError) -> msgspec.Struct:
    kind = error_kind(request.scope.get("path", ""))
    if kind is AnthropicError or of_anthropic(request):
        return anthropic_error(error, request.scope.get(REQUEST_KEY))
    return ollama_error(error) if kind is OllamaError else error_body(error)


async def respond_to_disconnect(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=CLIENT_CLOSED_REQUEST)


def _misdirected(request: Request, error: HTTPException) -> ApiError:
    """An error that Starlette's routing raised: an unknown path, or a method that the path does not take."""
    path, method = request.url.path, request.method
    if error.status_code == NOT_FOUND:
        message = f"there is no {path} here; the OpenAI API is under /v1, and GET / describes this server"
        return ApiError(NOT_FOUND, message, headers=error.headers)
    taken = ", ".join(_methods(request))
    headers = {**(error.headers or {}), "Allow": taken}
    return ApiError(error.status_code, f"{path} does not take {method}; it takes {taken}", headers=headers)


def _methods(request: Request) -> list[str]:
    """The methods that a path takes. Starlette's own error names only those of the path's first route."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    matching = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in matching for method in route.methods or ()})


def _known(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Overloaded):
        seconds = max(1, math.ceil(error.retry_after))
        return ApiError(503, str(error), code="overloaded", headers={"Retry-After": str(seconds)})
    if isinstance(error, Dropped):
        # OpenAI's clients retry a 408 unless a header says not to.
        return ApiError(TIMEOUT, str(error), code="request_dropped", headers={"X-Should-Retry": "false"})
    if isinstance(error, ContextExceeded):
        return ApiError(400, str(error), param=error.param, code=CONTEXT_EXCEEDED)
    if isinstance(error, RequestError):
        return ApiError(400, str(error), param=error.param)
    if isinstance(error, StorageError):
        return ApiError(507, str(error), code="storage_full" if error.full else "storage_failed")
    if isinstance(error, EngineGone):
        return ApiError(503, str(error), code="engine_gone")
    if isinstance(error, EngineError):
        return ApiError(500, str(error))
    return ApiError(500, "internal error; the server's log has the details")
