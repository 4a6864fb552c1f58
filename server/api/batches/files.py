"""``/v1/files``: what clients upload for batches, and what batches write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from io import BufferedReader

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from turnout.core.errors import RequestError
from turnout.server.api.batches.upload import read_upload
from turnout.server.api.context import context_of
from turnout.server.http.access.auth import client_of
from turnout.server.http.errors import ApiError
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import STORAGE, Parameter, operation, paging
from turnout.server.http.paging import Page
from turnout.server.storage.file_store import FileObject, FileStore

__all__ = ["delete_file", "file_store", "list_files", "show_content", "show_file", "upload_file"]

JSONL = "application/jsonl"
PORTION = 2**18
"""Bytes of a file that are read at once."""
MOST_LISTED = 10_000


class FileList(msgspec.Struct):
    """A page of files."""

    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class DeletedFile(msgspec.Struct):
    """What deleting a file answers."""

    id: str
    deleted: bool = True
    object: str = "file"


FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "Lines of JSON, a request each."},
        "purpose": {"type": "string", "enum": ["batch"]},
    },
}
OFF = {404: "There is none of this name, or the server takes no files."}


@operation(form=FORM, answer=FileObject, statuses={**STORAGE, **OFF})
async def upload_file(request: Request) -> Response:
    """Takes a file for batches."""
    store = file_store(request)
    with store.uploaded() as new:
        upload = await read_upload(request, new.path)
        purpose = upload.fields.get("purpose")
        if purpose != "batch":
            raise RequestError(f"purpose should be batch, not {purpose!r}", "purpose")
        return JsonResponse(await store.add(new, client_of(request).name, upload.filename, purpose))


@operation(
    answer=FileList,
    statuses={**STORAGE, **OFF},
    parameters=(*paging(MOST_LISTED, MOST_LISTED), Parameter("purpose", "Only files of it.")),
)
async def list_files(request: Request) -> Response:
    """Lists files."""
    page = Page.of(request.query_params, most=MOST_LISTED, default=MOST_LISTED)
    files = await file_store(request).list(client_of(request).name)
    purpose = request.query_params.get("purpose")
    wanted = [file for file in files if purpose is None or file.purpose == purpose]
    chosen, more = page.of_all(wanted, lambda file: file.id)
    first, last = (chosen[0].id, chosen[-1].id) if chosen else (None, None)
    return JsonResponse(FileList(chosen, first, last, more))


@operation(answer=FileObject, statuses={**STORAGE, **OFF})
async def show_file(request: Request) -> Response:
    """Describes a file."""
    return JsonResponse(await _found(request))


@operation(answer=None, media_type=JSONL, statuses={**STORAGE, **OFF})
async def show_content(request: Request) -> Response:
    """Shows a file's content."""
    found = await _found(request)
    try:  # now: it may be deleted before it is sent
        file = await asyncio.to_thread(file_store(request).path(found.id).open, "rb")
    except FileNotFoundError:
        raise _unknown(found.id) from None
    size = {"Content-Length": str(found.bytes)}
    return StreamingResponse(_portions(file), media_type=JSONL, headers=size)


async def _portions(file: BufferedReader) -> AsyncGenerator[bytes, None]:
    with file:
        while portion := await asyncio.to_thread(file.read, PORTION):
            yield portion


@operation(answer=DeletedFile, statuses={**STORAGE, **OFF})
async def delete_file(request: Request) -> Response:
    """Deletes a file."""
    id = request.path_params["file_id"]
    if not await file_store(request).delete(id, client_of(request).name):
        raise _unknown(id)
    return JsonResponse(DeletedFile(id))


async def _found(request: Request) -> FileObject:
    id = request.path_params["file_id"]
    found = await file_store(request).get(id, client_of(request).name)
    if found is None:
        raise _unknown(id)
    return found


def _unknown(id: str) -> ApiError:
    return ApiError(404, f"this client has no file with the id {id}", param="file_id")


def file_store(request: Request) -> FileStore:
    """Raises ApiError 404 where the server keeps no files."""
    store = context_of(request).stores.files
    if store is None:
        message = "this server takes no files and batches; it does when started with --batch-dir FOLDER"
        raise ApiError(404, message, code="no_batches")
    return store
