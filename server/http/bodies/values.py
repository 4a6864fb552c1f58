"""Decodes and validates a body, whose structure is bounded first.

Decoding and validating hold Python's global lock, so for as long as they take, no other request gets a token.
Counting a few bytes takes a thousandth of that.
"""

from __future__ import annotations

import gc
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.server.http.errors import ApiError

__all__ = ["decode_body", "decoded_size"]

BYTES_PER_VALUE = 40
"""About what a number takes, and the half of a string or of an empty list."""
FEW_BYTES = 16 * 2**10
"""A body of so many bytes makes Python's garbage collector run only a few times."""

Model = TypeVar("Model", bound=BaseModel)


def decoded_size(body: bytearray) -> int:
    """About the bytes that a body takes once it is decoded. Raises ApiError 413 for too many values."""
    commas, brackets = body.count(b","), body.count(b"[") + body.count(b"{")
    quotes = body.count(b'"') - body.count(b'\\"')
    values = commas + 4 * (brackets + quotes)
    if values > limits.VALUES.most:
        message = (
            "the request's body has too many values: its commas, brackets and quotation marks, the latter "
            f"two counted four times, come to {values:,}; at most {limits.VALUES.whole:,} are accepted"
        )
        raise ApiError(413, message)
    return len(body) + BYTES_PER_VALUE * (commas + 2 * brackets + quotes)


def decode_body(body: bytearray, model: type[Model]) -> Model:
    """A body that `decoded_size` has accepted, which is empty afterwards. Raises RequestError."""
    with _no_collections() if len(body) > FEW_BYTES else nullcontext():
        try:
            content = _parse(body)
            deep = body.count(b"[") + body.count(b"{") > limits.DEPTH.most
        finally:
            body.clear()  # as an error's traceback would keep it
        if not isinstance(content, dict):
            raise RequestError("the body must be a JSON object")
        if len(content) > limits.FIELDS.most:
            raise RequestError(
                f"the body has {len(content):,} fields; at most {limits.FIELDS.whole} are accepted"
            )
        if deep and _is_too_deep(content):
            raise _too_deep()
        return _validated(content, model)


def _validated(content: dict[str, Any], model: type[Model]) -> Model:
    try:
        return model.model_validate({name: value for name, value in content.items() if value is not None})
    except ValidationError as error:
        explained = _explain(error)
    raise explained  # here, since the other error keeps the whole input


def _parse(body: bytearray) -> Any:
    """msgspec refuses what json.loads lets through: NaN, and half of a surrogate pair."""
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the request's body is not valid JSON: {error}") from None


def _is_too_deep(content: object) -> bool:
    level: list[Any] = [content]
    for _ in range(limits.DEPTH.whole):
        parts = (value.values() if isinstance(value, dict) else value for value in level)
        level = [value for part in parts for value in part if isinstance(value, dict | list)]
        if not level:
            return False
    return True


def _too_deep() -> RequestError:
    return RequestError(
        f"the request's body is nested too deeply: at most {limits.DEPTH.whole} levels are accepted"
    )


def _explain(error: ValidationError) -> RequestError:
    problem = error.errors(include_url=False, include_context=False)[0]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])[1:]
    if problem["type"] == "missing":
        return RequestError(f"{field}: this field is required", field)
    message = problem["msg"].removeprefix("Value error, ")
    return RequestError(f"{field}: {message} (given: {_short(problem['input'])})", field)


def _short(value: object, length: int = 100) -> str:
    text = _BRIEF.repr(value)
    return text if len(text) <= length else f"{text[:length]}…"


_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 200
_BRIEF.maxlist = _BRIEF.maxdict = 20


@contextmanager
def _no_collections() -> Iterator[None]:
    """Garbage collections, of which growing containers cause one after the other, take most of the time.

    The switch is the process's. Only the one thread that decodes large bodies uses it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
