"""``/v1/responses/{id}``: shows, deletes and cancels stored responses, and lists what they answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.server.api.context import context_of
from turnout.server.api.respond import EventStream
from turnout.server.api.responses.keeping import all_items, items_of, made_of
from turnout.server.http.access.auth import client_of
from turnout.server.http.errors import ApiError
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import EVENTS, STORAGE, Parameter, operation, paging
from turnout.server.http.paging import Page
from turnout.server.http.request_memory import held_memory
from turnout.server.protocol.stored_items import DeletedResponse, ItemList
from turnout.server.renderers.responses import ResponseBody
from turnout.server.storage.response_store import ChainTooLong, ResponseStore, StoredResponse

__all__ = ["cancel_response", "delete_response", "list_input_items", "show_response"]


MOST_DIGITS = 12
"""Of an event's number."""
STREAMED = (
    Parameter(
        "stream", "Send the events of a response that began with `background` and `stream`.", "boolean"
    ),
    Parameter("starting_after", "The last event that is known already, by its number.", "integer"),
)


@operation(answer=ResponseBody, streams=EVENTS, statuses=STORAGE, parameters=STREAMED)
async def show_response(request: Request) -> Response:
    """Shows a stored response, or streams one in the background from any event on."""
    first = _first_event(request.query_params)
    found = await _found(request)
    if first is None:
        return _whole(found)
    log = context_of(request).background.logs.find(found.id)
    if log is None:
        raise RequestError(
            f"the events of the response {found.id} are not there: a response has them if it began with "
            "background and stream, until those of later ones take their room; leave out stream",
            "stream",
        )
    return EventStream(log.read(first), held_memory(request))


def _first_event(query: Mapping[str, str]) -> int | None:
    """The number of the first event that is asked for; None: the response is to be shown whole."""
    stream, after = query.get("stream", "false").lower(), query.get("starting_after")
    if stream not in ("true", "1", "false", "0"):
        raise RequestError(f"stream should be true or false, not {stream!r}", "stream")
    if stream in ("false", "0"):
        if after is not None:
            raise RequestError("starting_after is only allowed together with stream", "starting_after")
        return None
    if after is None:
        return 0
    if not (after.isascii() and after.isdigit() and len(after) <= MOST_DIGITS):
        raise RequestError(
            f"starting_after should be the number of an event, not {after!r}", "starting_after"
        )
    return int(after) + 1


@operation(answer=DeletedResponse, statuses=STORAGE)
async def delete_response(request: Request) -> Response:
    """Deletes a stored response."""
    found = await _found(request)
    await context_of(request).background.cancel(found.id)
    context_of(request).background.logs.forget(found.id)
    if not await _store(request).delete(found.id, found.owner):
        raise _unknown(found.id)
    return JsonResponse(DeletedResponse(found.id))


@operation(answer=ResponseBody, statuses=STORAGE)
async def cancel_response(request: Request) -> Response:
    """Ends a response in the background."""
    found = await _found(request)
    if not msgspec.json.decode(found.body).get("background"):
        message = f"the response {found.id} was not in the background; only such responses can be cancelled"
        raise RequestError(message, "response_id")
    await context_of(request).background.cancel(found.id)
    return _whole(await _found(request))


@operation(answer=ItemList, statuses=STORAGE, parameters=paging())
async def list_input_items(request: Request) -> Response:
    """Lists what a stored response answered: its input, after what it goes on from."""
    page = Page.of(request.query_params)
    last = await _found(request)
    before: Sequence[StoredResponse] = ()
    if last.previous is not None:
        most = context_of(request).config.max_body_size
        try:
            found = await _store(request).conversation(last.previous, last.owner, most)
            before = () if isinstance(found, str) else found
        except ChainTooLong:
            pass
    items = await made_of(request, [*before, last], _answered)
    chosen, more = page.of_all(items, lambda item: str(item["id"]))
    first, final = (chosen[0]["id"], chosen[-1]["id"]) if chosen else (None, None)
    return JsonResponse(ItemList(chosen, first, final, more))


def _answered(responses: Sequence[StoredResponse]) -> list[dict[str, Any]]:
    """What the last of them answered; an item that is repeated stands where it came first, as pages go by
    ids."""
    *before, last = responses
    items: dict[str, dict[str, Any]] = {}
    for item in (*all_items(before), *items_of(last, output=False)):
        items.setdefault(item["id"], item)
    return list(items.values())


async def _found(request: Request) -> StoredResponse:
    """Raises ApiError 404 for a response that this client has not stored."""
    id = request.path_params["response_id"]
    found = await _store(request).get(id, client_of(request).name)
    if found is None:
        raise _unknown(id)
    return found


def _unknown(id: str) -> ApiError:
    return ApiError(404, f"no response with the id {id} is stored for this client; it may have expired")


def _store(request: Request) -> ResponseStore:
    store = context_of(request).stores.responses
    if store is None:
        message = "this server stores no responses; it does when started with --response-store FILE"
        raise ApiError(404, message, code="no_response_store")
    return store


def _whole(found: StoredResponse) -> Response:
    return Response(found.body, media_type=JsonResponse.media_type)
