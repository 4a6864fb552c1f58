"""Reads a request's body into a validated model; errors name the field."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request

from turnout.server.http.bodies.pace import Pace
from turnout.server.http.bodies.turns import Turns
from turnout.server.http.bodies.values import BodySize, parse_body, validate_body
from turnout.server.http.disconnect import while_connected
from turnout.server.http.errors import ApiError
from turnout.server.http.request_memory import held_memory

__all__ = ["read_body"]

SMALL = 16 * 2**10
"""Bytes that are decoded at once: handing them to a thread would take longer."""
SMALL_DECODED = 4 * SMALL
"""As many, by `BodySize.decoded`: thousands of prompts of a letter are few bytes."""

Model = TypeVar("Model", bound=BaseModel)


async def read_body(
    request: Request, model: type[Model], *, limit: int, any_media_type: bool = False
) -> Model:
    """The body as a `model`; a field that is null counts as not given.

    any_media_type: a client that is no web page may leave out that the body is JSON.

    Raises RequestError for a body that is not valid, ApiError 413 for more than `limit` bytes, ApiError 415
    for another media type than JSON and for one that is compressed, Overloaded where the bodies in flight
    leave no memory, ClientDisconnect.
    """
    _check_encoding(request)
    if not any_media_type or "origin" in request.headers:
        _check_media_type(request)
    size = BodySize()
    body = await _read(request, limit, size)
    if len(body) <= SMALL and size.decoded <= SMALL_DECODED:
        return validate_body(parse_body(body), model, may_be_deep=size.may_be_deep)
    turns: Turns = request.app.state.decoding
    return await while_connected(request.receive, _decode(turns, body, model, size))


async def _decode(turns: Turns, body: bytearray, model: type[Model], size: BodySize) -> Model:
    async with turns.turn(size.decoded):
        if size.few_values:
            content = parse_body(body)
        else:
            content = await turns.run(partial(parse_body, body, few_values=False))
        return await turns.run(partial(validate_body, content, model, may_be_deep=size.may_be_deep))


def _check_media_type(request: Request) -> None:
    """Raises ApiError 415 for a body not declared as JSON, which a page of another site may have sent.

    A browser sends JSON to another site only if that site allows it. A request without a media type is served
    only without an `Origin`, which a browser always sends.
    """
    given = request.headers.get("content-type", "")
    media_type = given.partition(";")[0].strip().lower()
    json = media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )
    if json or not (given or "origin" in request.headers):
        return
    message = (
        f"the body's media type must be application/json, not {given or 'missing'!r}; send the header "
        "'Content-Type: application/json', with curl as -H 'Content-Type: application/json' or by --json"
    )
    raise ApiError(415, message, code="unsupported_media_type")


def _check_encoding(request: Request) -> None:
    """Raises ApiError 415 for a body that is compressed, whose size is known too late."""
    given = request.headers.get("content-encoding", "identity")
    if given.strip().lower() not in ("", "identity"):
        message = f"the body's Content-Encoding is {given!r}; send it as it is, without that header"
        raise ApiError(415, message, code="unsupported_media_type")


async def _read(request: Request, limit: int, size: BodySize) -> bytearray:
    """The body's bytes. Raises ApiError 413 for more than `limit`, at once if that many are announced."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    body, memory = bytearray(), held_memory(request)
    pace: Pace = request.app.state.pace
    try:
        with memory.gathering() as hold:
            async for chunk in request.stream():
                if len(chunk) > SMALL:
                    await pace.take(len(chunk))
                if len(body) + len(chunk) > limit:
                    raise _too_large(limit)
                size.add(chunk)
                hold(size.decoded)
                body += chunk
    except BaseException:
        body.clear()  # as the error's traceback would keep it
        raise
    return body


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the request's body is larger than {limit:,} bytes")
