"""What answers to ``/api/chat`` and ``/api/generate`` have in common."""

from __future__ import annotations

from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.server.api.context import Context, context_of
from turnout.server.fleet.arms import ServedArm
from turnout.server.http.bodies.body import read_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.protocol.ollama.requests import OllamaRequest
from turnout.server.renderers.ollama import NDJSON, now

__all__ = ["LATEST", "check_thinking", "load_or_unload", "loaded", "read_request"]

LATEST = ":latest"
"""The tag of a name that has none."""

Asked = TypeVar("Asked", bound=OllamaRequest)


async def read_request(request: Request, kind: type[Asked]) -> tuple[Asked, Context]:
    """The body, and the context of the model that it names. Raises RequestError, ApiError."""
    context = context_of(request)
    asked = await read_body(request, kind, limit=context.config.max_body_size, any_media_type=True)
    return asked, context.of(asked.model, tag=LATEST)


def check_thinking(arm: ServedArm, asked: OllamaRequest) -> None:
    """Raises RequestError where reasoning is asked for of a model whose format knows none."""
    if asked.think and not arm.format.reasons:
        raise RequestError(
            f"{asked.model!r} does not reason, as far as its chat template tells; leave out think", "think"
        )


async def load_or_unload(request: Request, context: Context, keep_alive: float | None) -> None:
    """Does to a model that is loaded on demand what a request asks that gives it nothing to do.

    keep_alive: the seconds for which it stays; 0 unloads it. Raises ApiError where it cannot be loaded.
    """
    if keep_alive != 0:
        await context.ensure_loaded(request)
    context.keep_loaded(keep_alive)


async def loaded(request: Request, context: Context, asked: OllamaRequest, **empty: Any) -> Response:
    """The answer to a request without a prompt, which loads or unloads a model that is loaded on demand."""
    await load_or_unload(request, context, asked.keep_alive)
    unloads = asked.keep_alive == 0
    body = {"model": asked.model, "created_at": now(), **empty, "done": True}
    response = JsonResponse({**body, "done_reason": "unload" if unloads else "load"})
    if asked.stream:
        response.headers["Content-Type"] = NDJSON
    return response
