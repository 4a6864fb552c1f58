"""Input items that refer to items of stored responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request

from turnout.core.errors import RequestError
from turnout.server.api.context import context_of
from turnout.server.api.responses.keeping import items_of, made_of
from turnout.server.http.access.auth import client_of
from turnout.server.http.errors import ApiError
from turnout.server.protocol.responses_request import ResponsesRequest
from turnout.server.storage.response_store import ChainTooLong, StoredResponse

__all__ = ["with_references"]

Item = dict[str, Any]


async def with_references(request: Request, asked: ResponsesRequest) -> ResponsesRequest:
    """The request with the items themselves where it refers to some. Raises ApiError 404, RequestError."""
    references = asked.references()
    if not references:
        return asked
    context = context_of(request)
    store, most = context.stores.responses, context.config.max_body_size
    if store is None:
        raise RequestError(
            f"input[{references[0][0]}] refers to an item of a stored response, and this server stores "
            "responses only with --response-store; send the item itself",
            "input",
        )
    names = dict.fromkeys(name for _, name in references)
    try:
        found = await store.holding(names, client_of(request).name, most)
    except ChainTooLong:
        raise RequestError(
            f"the responses that hold the items are larger than a request may be: {most:,} bytes", "input"
        ) from None
    known = await made_of(request, found, partial(_items, names))
    return asked.model_copy(update={"input": _resolved(asked.input_items(), references, known)})


def _items(names: Mapping[str, None], responses: Sequence[StoredResponse]) -> dict[str, Item]:
    found = (item for response in responses for item in items_of(response))
    return {item["id"]: item for item in found if isinstance(item["id"], str) and item["id"] in names}


def _resolved(
    items: Iterable[Item], references: Sequence[tuple[int, str]], known: Mapping[str, Item]
) -> list[Item]:
    """Raises ApiError 404 for an item that is not known."""
    resolved = list(items)
    for number, name in references:
        if name not in known:
            raise ApiError(
                404,
                f"no item with the id {name}, which input[{number}] refers to, is stored for this client; it "
                "may have expired",
                param="input",
                code="item_not_found",
            )
        resolved[number] = known[name]
    return resolved
