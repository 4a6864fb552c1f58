"""Which store a response goes to, and which conversation it goes on from."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from turnout.core.errors import RequestError, StorageError
from turnout.server.api.context import context_of
from turnout.server.http.access.auth import client_of
from turnout.server.http.disconnect import while_connected
from turnout.server.http.errors import ApiError
from turnout.server.http.request_memory import held_memory
from turnout.server.protocol.responses_request import ResponsesRequest
from turnout.server.protocol.stored_items import stored_items
from turnout.server.renderers.responses import Keeper, ResponseBody
from turnout.server.storage.response_store import ChainTooLong, ResponseStore, StoredResponse

__all__ = [
    "all_items",
    "earlier_items",
    "end_keeper",
    "items_of",
    "keeper_of",
    "made_of",
    "put_begun",
    "wants_store",
]

logger = logging.getLogger(__name__)

Item = dict[str, Any]
Made = TypeVar("Made")
FINISHED = ("completed", "incomplete")
DECODED = 8
"""Bytes that a byte of short items takes once it is decoded."""


def wants_store(request: Request, asked: ResponsesRequest) -> bool:
    """Whether the response is stored. Raises RequestError for what only a store makes possible."""
    there = context_of(request).stores.responses is not None
    for name, given in (
        ("previous_response_id", asked.previous_response_id),
        ("background", asked.background),
    ):
        if given and not there:
            message = f"{name} needs stored responses, which this server has with --response-store; without, "
            raise RequestError(f"{message}send the whole conversation as input", name)
    if asked.background and asked.store is False:
        raise RequestError("background needs a stored response; leave out store", "store")
    return there and asked.store is not False


async def earlier_items(request: Request, asked: ResponsesRequest) -> list[Item]:
    """The items of the conversation that a request goes on from. Raises ApiError 404, RequestError."""
    previous = asked.previous_response_id
    if not previous:
        return []
    store, most = _store(request), context_of(request).config.max_body_size
    try:
        found = await store.conversation(previous, client_of(request).name, most)
    except ChainTooLong:
        raise RequestError(
            f"the conversation that leads to it is larger than a request may be: {most:,} bytes",
            "previous_response_id",
        ) from None
    if isinstance(found, str):
        missing = previous if found == previous else f"{found}, which {previous} goes on from,"
        raise ApiError(
            404,
            f"no response with the id {missing} is stored for this client; it may have expired",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    if found[-1].status not in FINISHED:
        raise RequestError(f"the response {previous} is {found[-1].status}", "previous_response_id")
    return await made_of(request, found, all_items)


async def made_of(
    request: Request, responses: Sequence[StoredResponse], make: Callable[[Sequence[StoredResponse]], Made]
) -> Made:
    """What `make` makes of responses, which may be as large as a body: other requests go on meanwhile.

    Raises Overloaded.
    """
    size = sum(response.size for response in responses)
    held_memory(request).add(DECODED * size)
    work = partial(make, responses)
    return await while_connected(request.receive, context_of(request).texts.run(size, work))


def all_items(responses: Sequence[StoredResponse]) -> list[Item]:
    """The items of a conversation."""
    return [item for response in responses for item in items_of(response)]


def items_of(response: StoredResponse, *, output: bool = True) -> list[Item]:
    """A response's own input, and its output."""
    items: list[Item] = msgspec.json.decode(response.input)
    return items + _output(response) if output else items


def _output(response: StoredResponse) -> list[Item]:
    output: list[Item] = msgspec.json.decode(response.body)["output"]
    return output


def keeper_of(request: Request, asked: ResponsesRequest) -> Keeper:
    """Stores a response to this request when it has ended.

    One that cannot be stored is answered all the same, and says that it is not stored.
    """

    async def keep(body: ResponseBody) -> bool:
        try:
            await _put(request, asked, body)
        except StorageError as error:
            logger.error("the response %s is not stored: %s", body.id, error)
            return False
        return True

    return keep


async def put_begun(request: Request, asked: ResponsesRequest, body: ResponseBody) -> None:
    """Stores a response that has begun. Raises StorageError."""
    await _put(request, asked, body)


def end_keeper(request: Request) -> Callable[[ResponseBody], Awaitable[None]]:
    """Stores the end of a response in the background, if it has not been deleted. May raise StorageError."""

    async def keep(body: ResponseBody) -> None:
        content = msgspec.json.encode(body)
        await _store(request).update(body.id, client_of(request).name, body.status, content)

    return keep


async def _put(request: Request, asked: ResponsesRequest, body: ResponseBody) -> None:
    stored = partial(_stored, client_of(request).name, asked, body)
    context = context_of(request)
    await _store(request).put(await context.texts.run(len(asked.input), stored, bounded=False))


def _stored(owner: str, asked: ResponsesRequest, body: ResponseBody) -> StoredResponse:
    return StoredResponse(
        body.id,
        owner,
        asked.previous_response_id,
        body.status,
        msgspec.json.encode(body),
        msgspec.json.encode(stored_items(asked.input_items())),
    )


def _store(request: Request) -> ResponseStore:
    store = context_of(request).stores.responses
    assert store is not None  # `wants_store` has looked
    return store
