"""Decodes and validates a body, whose structure is bounded first.

Decoding holds Python's global lock, so for as long as a call takes, no other request gets a token. Counting a
few bytes takes a thousandth of that.
"""

from __future__ import annotations

import re
import reprlib
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.core.process import no_collections
from turnout.server.http.bodies.sliced_json import decode_in_slices
from turnout.server.http.errors import ApiError

__all__ = ["BodySize", "parse_body", "too_deep", "validate_body"]

BYTES_PER_VALUE = 40
"""About what a number takes, and the half of a string or of an empty list."""
FEW_BYTES = 16 * 2**10
"""A body of so many bytes makes Python's garbage collector run only a few times."""
FEW_VALUES = 2**18
"""Numbers, of 40 ns each, that are decoded in one call; a string, or an empty list, takes as long as two."""
QUOTE, BRACKET = 8, 16
"""What a quotation mark and a bracket count for in `limits.VALUES`. Lists of numbers are decoded in slices,
strings and objects at once: these bounds keep that below 20 ms."""

FIRST, SECOND = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
HALF_PAIR = re.compile(
    rb"(?<!\\)(?:\\\\)*(?P<half>%b(?!%b)|(?<!%b)%b)" % (FIRST, SECOND, FIRST, SECOND), re.DOTALL
)
"""An escape of half of a surrogate pair, without the other half."""

Model = TypeVar("Model", bound=BaseModel)


class BodySize:
    """Counts what a body is to decode, as it comes."""

    def __init__(self) -> None:
        self._bytes = self._commas = self._brackets = self._quotes = 0

    def add(self, part: bytes) -> None:
        """Raises ApiError 413 for too many values."""
        self._bytes += len(part)
        self._commas += part.count(b",")
        self._brackets += part.count(b"[") + part.count(b"{")
        self._quotes += part.count(b'"') - part.count(b'\\"')
        values = self._commas + QUOTE * self._quotes + BRACKET * self._brackets
        if values > limits.VALUES.most:
            raise ApiError(
                413,
                f"the request's body has too many values: its commas, {QUOTE} times its quotation marks and "
                f"{BRACKET} times its brackets come to more than {limits.VALUES.whole:,}; send them in "
                f"several requests, of texts to embed or rank at most {limits.POOLED.whole:,} in each",
            )

    @property
    def decoded(self) -> int:
        """About the bytes that it takes once it is decoded, itself included."""
        return self._bytes + BYTES_PER_VALUE * (self._commas + 2 * self._brackets + self._quotes)

    @property
    def few_values(self) -> bool:
        """One call may decode it."""
        return self._commas + 2 * (self._quotes + self._brackets) <= FEW_VALUES

    @property
    def may_be_deep(self) -> bool:
        return self._brackets > limits.DEPTH.most


def parse_body(body: bytearray, *, few_values: bool = True) -> dict[str, Any]:
    """The fields of a body, which is empty afterwards. Raises RequestError.

    few_values: decode it by a single call into C, which no other thread can interrupt. Make that in the event
    loop's thread: beside it, each of the loop's system calls would wait until such a call has ended.
    """
    try:
        with no_collections() if len(body) > FEW_BYTES else nullcontext():
            content = _parse(body, msgspec.json.decode if few_values else decode_in_slices)
    finally:
        body.clear()  # as an error's traceback would keep it
    if not isinstance(content, dict):
        raise RequestError("the body must be a JSON object")
    if len(content) > limits.FIELDS.most:
        raise RequestError(
            f"the body has {len(content):,} fields; at most {limits.FIELDS.whole} are accepted"
        )
    return content


def validate_body(content: dict[str, Any], model: type[Model], *, may_be_deep: bool) -> Model:
    """The fields as a `model`. Raises RequestError."""
    if may_be_deep and _is_too_deep(content):
        raise too_deep()
    try:
        return model.model_validate({name: value for name, value in content.items() if value is not None})
    except ValidationError as error:
        explained = _explain(error, content)
    raise explained  # here, since the other error keeps the whole input


def _parse(body: bytearray, decode: Callable[[bytearray], Any]) -> Any:
    """msgspec refuses what json.loads lets through: NaN, and half of a surrogate pair."""
    if body.startswith(BOM_UTF8):
        del body[: len(BOM_UTF8)]
    if not body:
        raise RequestError("the request's body is not valid JSON: it is empty")
    try:
        return decode(body)
    except RecursionError:
        raise too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the request's body is not valid JSON: {_reason(body, error)}") from None


def _reason(body: bytearray, error: Exception) -> str:
    """Why a body is not JSON. The library counts the bytes of a wrong text from the text's beginning, or does
    not say where it is wrong; half of a surrogate pair is the end of the body to it."""
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        return f"it is not UTF-8: {wrong.reason} (byte {wrong.start})"
    if half := HALF_PAIR.search(body):
        return f"{half['half'].decode()} is half of a surrogate pair (byte {half.start('half')})"
    return str(error)


def _is_too_deep(content: object) -> bool:
    level: list[Any] = [content]
    for _ in range(limits.DEPTH.whole):
        parts = (value.values() if isinstance(value, dict) else value for value in level)
        level = [value for part in parts for value in part if isinstance(value, dict | list)]
        if not level:
            return False
    return True


def too_deep() -> RequestError:
    """What a body with too many levels is refused by."""
    return RequestError(
        f"the request's body is nested too deeply: at most {limits.DEPTH.whole} levels are accepted"
    )


def _explain(error: ValidationError, content: dict[str, Any]) -> RequestError:
    problem = error.errors(include_url=False, include_context=False)[0]
    field = _field(problem["loc"], content, missing=problem["type"] == "missing")
    if problem["type"] == "missing":
        return RequestError(f"{field}: this field is required", field)
    message = problem["msg"].removeprefix("Value error, ")
    return RequestError(f"{field}: {message} (given: {_short(problem['input'])})", field)


def _field(location: Sequence[str | int], content: object, *, missing: bool) -> str:
    """The name of a place in a body. pydantic's has the members of unions too, which no client has sent.

    missing: the last part is not there.
    """
    field, value = "", content
    for place, part in enumerate(location, 1):
        if isinstance(part, int):
            items = value if isinstance(value, list) else []
            field, value = f"{field}[{part}]", items[part] if part < len(items) else None
        elif isinstance(value, dict) and part in value:
            field, value = f"{field}.{part}", value[part]
        elif missing and place == len(location):
            field = f"{field}.{part}"
    return field.removeprefix(".")


def _short(value: object, length: int = 100) -> str:
    text = _BRIEF.repr(value)
    return text if len(text) <= length else f"{text[:length]}…"


class _Brief(reprlib.Repr):
    """Shows an object's first fields; the base class would sort all of them."""

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        return super().repr_dict(dict(islice(x.items(), self.maxdict + 1)), level)


_BRIEF = _Brief()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 200
_BRIEF.maxlist = _BRIEF.maxdict = 20
