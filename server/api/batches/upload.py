"""Reads a body as ``multipart/form-data``, its file straight onto the disk."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from turnout.core import limits
from turnout.core.errors import RequestError, StorageError
from turnout.server.http.errors import ApiError

__all__ = ["Upload", "read_upload"]

PORTION = 2**20
"""Bytes that are written at once."""


@dataclass
class Upload:
    """A form: its fields, and the name of the file whose content has been written."""

    fields: dict[str, str]
    filename: str


async def read_upload(request: Request, target: Path) -> Upload:
    """Writes the part `file` to `target`. Raises RequestError, ApiError, ClientDisconnect."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise ApiError(
            415,
            "a file comes as multipart/form-data, with the fields purpose and file",
            code="unsupported_media_type",
        )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.FILE.whole + limits.FORM_FIELDS.whole:
        raise _too_large()
    try:
        with target.open("wb") as file:
            return await _read(request, _Form(file), options[b"boundary"])
    except OSError as error:
        raise StorageError(f"the file cannot be written: {error.strerror}", full=True) from None


async def _read(request: Request, form: _Form, boundary: bytes) -> Upload:
    parser, waiting = form.parser(boundary), bytearray()
    try:
        async for chunk in request.stream():
            waiting += chunk
            if len(waiting) >= PORTION:
                await asyncio.to_thread(parser.write, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(parser.write, bytes(waiting))
        parser.finalize()
    except MultipartParseError as error:
        raise RequestError(f"the body is not a valid form: {error}") from None
    return form.upload()


@dataclass
class _Form:
    """What the parser calls, part by part."""

    file: IO[bytes]
    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    ended: bool = False
    _header: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    _disposition: bytes = b""
    _name: str = ""
    _is_file: bool = False
    _value: bytearray = field(default_factory=bytearray)
    _small: int = 0
    """Bytes of fields and headers."""
    _size: int = 0
    """Bytes of the file."""

    def parser(self, boundary: bytes) -> MultipartParser:
        return MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._add(self._header[0], data[start:end]),
                "on_header_value": lambda data, start, end: self._add(self._header[1], data[start:end]),
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_end,
                "on_part_data": self._data,
                "on_part_end": self._end,
                "on_end": self._finish,
            },
        )

    def upload(self) -> Upload:
        if not self.ended:
            raise RequestError("the form ends in the middle of a part")
        if self.filename is None:
            raise RequestError("file: this field is required", "file")
        return Upload(self.fields, self.filename)

    def _begin(self) -> None:
        self._disposition, self._value = b"", bytearray()
        self._count(64)  # that there is a part

    def _add(self, to: bytearray, data: bytes) -> None:
        self._count(len(data))
        to += data

    def _count(self, size: int) -> None:
        self._small += size
        if self._small > limits.FORM_FIELDS.most:
            most = limits.FORM_FIELDS.whole
            raise ApiError(413, f"the form's fields and headers are larger than {most:,} bytes together")

    def _header_end(self) -> None:
        name, value = self._header
        if bytes(name).lower() == b"content-disposition":
            self._disposition = bytes(value)
        name.clear()
        value.clear()

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        self._is_file = self._name == "file"
        if self._is_file:
            if self.filename is not None:
                raise RequestError("file: one file is expected", "file")
            given = options.get(b"filename", b"").decode("utf-8", "replace")
            shown = "".join(c for c in given.replace("\\", "/").rpartition("/")[2] if c.isprintable())
            self.filename = shown[: limits.FILE_NAME.whole] or "file"

    def _data(self, data: bytes, start: int, end: int) -> None:
        if not self._is_file:
            self._add(self._value, data[start:end])
            return
        self._size += end - start
        if self._size > limits.FILE.most:
            raise _too_large()
        try:
            self.file.write(data[start:end])
        except OSError as error:
            raise ApiError(
                507, f"the file cannot be written: {error.strerror}", code="storage_full"
            ) from None

    def _end(self) -> None:
        if not self._is_file:
            self.fields[self._name] = self._value.decode("utf-8", "replace")

    def _finish(self) -> None:
        self.ended = True


def _too_large() -> ApiError:
    return ApiError(413, f"the file is larger than {limits.FILE.whole:,} bytes", param="file")
