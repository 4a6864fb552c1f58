"""Reads a request's body into a validated model; errors name the field."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from turnout.core.errors import RequestError
from turnout.server.http.errors import ApiError

__all__ = ["read_body"]

MAX_DISCARD_FACTOR = 8
"""How many times the limit a client may send before it is cut off."""

Model = TypeVar("Model", bound=BaseModel)


async def read_body(request: Request, model: type[Model], *, limit: int) -> Model:
    """The body as a `model`; a field that is null counts as not given.

    Raises RequestError for a body that is not valid, ApiError 413 for more than `limit` bytes.
    """
    content = _parse(await _read(request, limit))
    if not isinstance(content, dict):
        raise RequestError("the body must be a JSON object")
    try:
        return model.model_validate({name: value for name, value in content.items() if value is not None})
    except ValidationError as error:
        raise _explain(error) from None


async def _read(request: Request, limit: int) -> bytes:
    """The body's bytes. Raises ApiError 413 for more than `limit`.

    Most clients read no response before they have sent everything. So bytes past the limit are read and
    discarded, up to a second limit.
    """
    body, length = bytearray(), 0
    async for chunk in request.stream():
        length += len(chunk)
        if length <= limit:
            body += chunk
        elif length > MAX_DISCARD_FACTOR * limit:
            break
    if length > limit:
        message = f"the request's body is larger than {limit:,} bytes"
        raise ApiError(413, message, headers={"Connection": "close"})
    return bytes(body)


def _parse(body: bytes) -> Any:
    """msgspec refuses what json.loads lets through: NaN, and half of a surrogate pair."""
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise RequestError("the request's body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the request's body is not valid JSON: {error}") from None


def _explain(error: ValidationError) -> RequestError:
    problem = error.errors(include_url=False, include_context=False)[0]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])[1:]
    if problem["type"] == "missing":
        return RequestError(f"{field}: this field is required", field)
    message = problem["msg"].removeprefix("Value error, ")
    return RequestError(f"{field}: {message} (given: {_short(problem['input'])})", field)


def _short(value: object, length: int = 100) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}…"
