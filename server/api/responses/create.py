"""``POST /v1/responses``: OpenAI's newer API."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.api.conversation import prepared_generation, translated
from turnout.server.api.respond import EventStream, begin, respond
from turnout.server.api.responses.keeping import (
    earlier_items,
    end_keeper,
    keeper_of,
    put_begun,
    wants_store,
)
from turnout.server.api.responses.references import with_references
from turnout.server.fleet.arms import ServedArm
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import going_on
from turnout.server.http.bodies.body import read_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import EVENTS, STORAGE, operation
from turnout.server.http.request_memory import HeldMemory, held_memory
from turnout.server.http.telemetry.middleware import recording_further
from turnout.server.protocol.response_tools import is_offered
from turnout.server.protocol.responses_request import ChatOfResponse, ResponsesRequest
from turnout.server.renderers.responses import ResponseBody, ResponsesRenderer

__all__ = ["responses"]


@operation(body=ResponsesRequest, answer=ResponseBody, streams=EVENTS, generates=True, statuses=STORAGE)
async def responses(request: Request) -> Response:
    """Answers a conversation."""
    context = context_of(request)
    asked = await read_body(request, ResponsesRequest, limit=context.config.max_body_size)
    context = context.of(asked.model)
    stored = wants_store(request, asked)
    before = await earlier_items(request, asked)
    asked = await with_references(request, asked)
    with asked.tools_numbered():
        body = await translated(request, partial(asked.chat_fields, before), ChatOfResponse)
    id = f"resp_{uuid.uuid4().hex}"
    async with context.assigned_arm(request, body.user, id, stream=bool(asked.stream)) as arm:
        with asked.tools_numbered(), body.client_field_names():
            generation = await prepared_generation(request, context, arm, body, id, as_fits=True)
            params = generation.requests[0].params
            echoed = _echoed(asked) | {"temperature": params.temperature, "top_p": params.top_p}
            keeper = keeper_of(request, asked) if stored else None
            renderer = ResponsesRenderer(
                id,
                context.model_name,
                int(time.time()),
                echoed,
                {each.full_name: each for each in asked.callable_tools()},
                keeper=keeper,
                store=stored,
            )
            if asked.background:
                begin(request, generation)
                generation.submit_by(context.rooms[arm.name].submit)
                begun = await _begun(request, asked, arm, generation, renderer)
                log = context.background.logs.find(id)
                return JsonResponse(begun) if log is None else EventStream(log.read(0), held_memory(request))
            return await respond(request, generation, renderer, stream=bool(asked.stream))


async def _begun(
    request: Request,
    asked: ResponsesRequest,
    arm: ServedArm,
    generation: Generation,
    renderer: ResponsesRenderer,
) -> ResponseBody:
    """The response as it stands when it goes on in the background. Raises Overloaded, StorageError."""
    background = context_of(request).background
    with background.place():
        body = renderer.begun(generation)
        await put_begun(request, asked, body)
        held = _going_on(request, arm, generation)
        background.start(generation, renderer, end_keeper(request), held, stream=bool(asked.stream))
        return body


@contextmanager
def _going_on(request: Request, arm: ServedArm, generation: Generation) -> Iterator[HeldMemory]:
    """Keeps the engine and the memory for a response in the background, and counts it for its key."""
    with (
        arm.held(),
        going_on(request, lambda: generation.counted_tokens),
        held_memory(request).passed_on() as memory,
        recording_further(request.scope, generation),
    ):
        yield memory


def _echoed(asked: ResponsesRequest) -> dict[str, Any]:
    """What a response repeats of its request; of the tools, those that the model was told of."""
    return {
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "reasoning": {"effort": asked.reasoning.effort if asked.reasoning else None, "summary": None},
        "text": {"format": (asked.text and asked.text.format) or {"type": "text"}},
        "tool_choice": asked.tool_choice or "auto",
        "tools": [_told(tool) for tool in asked.tools or () if is_offered(tool)],
        "user": asked.user,
        "metadata": asked.metadata or {},
        "previous_response_id": asked.previous_response_id or None,
        **({"background": True} if asked.background else {}),
        **({"warnings": warnings} if (warnings := _warnings(asked)) else {}),
    }


def _warnings(asked: ResponsesRequest) -> list[dict[str, str]]:
    """Says which tools the model was not told of, so that a client that counts on one learns why."""
    return [
        {"param": f"tools[{number}]", "message": f"tools of the type {tool.get('type')!r} are left out"}
        for number, tool in enumerate(asked.tools or ())
        if not is_offered(tool)
    ]


def _told(tool: dict[str, Any]) -> dict[str, Any]:
    return {"strict": None, "parameters": None, **tool} if tool["type"] == "function" else tool
