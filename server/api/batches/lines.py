"""The lines of a batch's input, each a request, and of its output, each an answer."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.server.http.bodies.values import too_deep
from turnout.server.storage.batch_store import LineError, LineResult

__all__ = ["NO_INPUT", "Answer", "Line", "check_input", "result_of", "unanswered", "unread"]

NO_INPUT = LineError("no_input", "the input file has been deleted")
MOST_ERRORS = 100
"""That are told of an input."""
LOWEST = 2**31
"""The priority of a line that names none."""


class _Input(msgspec.Struct):
    custom_id: str
    method: str
    url: str
    body: dict[str, Any]


class Line(NamedTuple):
    """A request."""

    number: int
    """From 0 on, counting lines that are not empty."""
    custom_id: str
    body: dict[str, Any]
    size: int
    """Bytes of the line."""

    def content(self) -> bytes:
        """The request's body. Raises RequestError."""
        if self.body.get("stream") or self.body.get("background"):
            raise RequestError(
                "a line of a batch is answered whole; leave out stream and background", "stream"
            )
        try:
            return msgspec.json.encode({"priority": LOWEST, **self.body})
        except RecursionError:  # it was decoded with fewer calls around it
            raise too_deep() from None


class Answer(NamedTuple):
    """What a request got."""

    status: int
    body: bytes
    request_id: str


def check_input(path: Path, endpoint: str) -> tuple[int, list[LineError]]:
    """How many lines an input has, and what is wrong with it."""
    errors: list[LineError] = []
    ids: set[str] = set()
    count = 0
    try:
        for number, text in _texts(path):
            count += 1
            if count > limits.BATCH_LINES.most:
                most = limits.BATCH_LINES.whole
                errors.append(LineError("too_many_lines", f"a batch has at most {most:,} lines", number))
                break
            if (error := _error(number, text, endpoint, ids)) is not None:
                errors.append(error)
                if len(errors) >= MOST_ERRORS:
                    break
    except OSError:
        return 0, [NO_INPUT]
    if not count:
        errors.append(LineError("empty_file", "the input file has no lines"))
    return count, errors


def _error(number: int, text: bytes, endpoint: str, ids: set[str]) -> LineError | None:
    if len(text) > limits.BATCH_LINE.most:
        return LineError("line_too_long", f"a line has at most {limits.BATCH_LINE.whole:,} bytes", number)
    try:
        line = msgspec.json.decode(text, type=_Input)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return LineError("invalid_line", f"the line is not a request as JSON: {error}"[:500], number)
    if line.custom_id in ids:
        told = f"{line.custom_id!r} stands in two lines"[:500]
        return LineError("duplicate_custom_id", told, number, "custom_id")
    ids.add(line.custom_id)
    if line.method != "POST":
        return LineError("invalid_method", f"expected is POST, not {line.method!r}"[:500], number, "method")
    if line.url != endpoint:
        told = f"expected is {endpoint}, the batch's endpoint, not {line.url!r}"[:500]
        return LineError("invalid_url", told, number, "url")
    return None


def unread(path: Path, answered: Container[int]) -> Iterator[Line]:
    """The lines of a checked input that have no result."""
    for number, (_, text) in enumerate(_texts(path)):
        if number not in answered:
            line = msgspec.json.decode(text, type=_Input)
            yield Line(number, line.custom_id, line.body, len(text))


def _texts(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers in the file, from 1 on. A long one is cut off."""
    with path.open("rb") as file:
        if file.read(len(BOM_UTF8)) != BOM_UTF8:
            file.seek(0)
        number = 0
        while text := file.readline(limits.BATCH_LINE.whole + 1):
            number += 1
            yield from () if text.isspace() else ((number, text),)
            if len(text) > limits.BATCH_LINE.most:
                return  # it is no line of a batch, and neither is the file


def result_of(line: Line, answer: Answer) -> LineResult:
    response = {
        "status_code": answer.status,
        "request_id": answer.request_id,
        "body": msgspec.Raw(answer.body),
    }
    return _result(line, answer.status == 200, response, None)


def unanswered(line: Line, code: str, message: str) -> LineResult:
    """The result of a line that was not tried."""
    return _result(line, False, None, {"code": code, "message": message})


def _result(line: Line, good: bool, response: object, error: object) -> LineResult:
    id = f"batch_req_{uuid4().hex}"
    content = {"id": id, "custom_id": line.custom_id, "response": response, "error": error}
    return LineResult(line.number, good, msgspec.json.encode(content))
