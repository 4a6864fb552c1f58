"""``/v1/batches``: many requests in a file, answered when there is room for them."""

from __future__ import annotations

from typing import Literal

import msgspec
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.server.api.batches.files import OFF, file_store
from turnout.server.api.context import context_of
from turnout.server.http.access.auth import client_of
from turnout.server.http.bodies.body import read_body
from turnout.server.http.errors import ApiError
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import STORAGE, operation, paging
from turnout.server.http.paging import Page
from turnout.server.protocol.metadata import Notes
from turnout.server.storage.batch_store import Batch, BatchStore

__all__ = ["cancel_batch", "create_batch", "list_batches", "show_batch"]


class BatchRequest(BaseModel):
    """The body of a request for a batch."""

    model_config = ConfigDict(strict=True, extra="forbid")

    input_file_id: str
    """A file of the purpose `batch`: lines `{"custom_id": …, "method": "POST", "url": …, "body": {…}}`."""
    endpoint: Literal[
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/score",
    ]
    """The path that all lines are for."""
    completion_window: Literal["24h"]
    """What has not been answered by then ends up in the error file."""
    metadata: Notes | None = None
    """Given back with the batch."""


class BatchList(msgspec.Struct):
    """A page of batches."""

    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


@operation(body=BatchRequest, answer=Batch, statuses={**STORAGE, **OFF})
async def create_batch(request: Request) -> Response:
    """Begins a batch."""
    store, files, owner = _store(request), file_store(request), client_of(request).name
    asked = await read_body(request, BatchRequest, limit=context_of(request).config.max_body_size)
    file = await files.get(asked.input_file_id, owner)
    if file is None:
        message = f"this client has no file with the id {asked.input_file_id}"
        raise RequestError(message, "input_file_id")
    if file.purpose != "batch":
        message = f"the purpose of {file.id} is {file.purpose}; upload the input with the purpose batch"
        raise RequestError(message, "input_file_id")
    batch = await store.create(owner, asked.endpoint, file.id, asked.completion_window, asked.metadata)
    context_of(request).batch_news.set()
    return JsonResponse(batch)


@operation(answer=Batch, statuses={**STORAGE, **OFF})
async def show_batch(request: Request) -> Response:
    """Shows how far a batch is."""
    return JsonResponse(await _found(request))


@operation(answer=BatchList, statuses={**STORAGE, **OFF}, parameters=paging())
async def list_batches(request: Request) -> Response:
    """Lists batches."""
    page = Page.of(request.query_params)
    batches = await _store(request).list(client_of(request).name)
    chosen, more = page.of_all(batches, lambda batch: batch.id)
    first, last = (chosen[0].id, chosen[-1].id) if chosen else (None, None)
    return JsonResponse(BatchList(chosen, first, last, more))


@operation(answer=Batch, statuses={**STORAGE, **OFF})
async def cancel_batch(request: Request) -> Response:
    """Ends a batch; what has been answered stays in its output file."""
    found = await _found(request)
    batch = await _store(request).cancel(found.id)
    context_of(request).batch_news.set()
    return JsonResponse(batch)


async def _found(request: Request) -> Batch:
    id = request.path_params["batch_id"]
    found = await _store(request).get(id, client_of(request).name)
    if found is None:
        raise ApiError(404, f"this client has no batch with the id {id}", param="batch_id")
    return found


def _store(request: Request) -> BatchStore:
    file_store(request)  # says what is missing
    store = context_of(request).stores.batches
    assert store is not None
    return store
