"""``POST /v1/responses``: OpenAI's newer API, without stored responses."""

from __future__ import annotations

import time
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.api.conversation import prepared_generation, translated
from turnout.server.api.respond import respond
from turnout.server.http.bodies.body import read_body
from turnout.server.protocol.responses_request import ResponsesRequest
from turnout.server.renderers.responses import ResponsesRenderer

__all__ = ["responses"]


async def responses(request: Request) -> Response:
    """Answers a conversation."""
    context = context_of(request)
    asked = await read_body(request, ResponsesRequest, limit=context.config.max_body_size)
    context.check_model(asked.model)
    body = await translated(request, asked.chat_fields, len(asked.input))
    id = f"resp_{uuid.uuid4().hex}"
    with context.assigned_arm(request, body.user, id) as arm:
        generation = await prepared_generation(request, context, arm, body, id, as_fits=True)
        params = generation.requests[0].params
        echoed = _echoed(asked) | {"temperature": params.temperature, "top_p": params.top_p}
        renderer = ResponsesRenderer(id, context.model_name, int(time.time()), echoed)
        return await respond(request, generation, renderer, stream=bool(asked.stream))


def _echoed(asked: ResponsesRequest) -> dict[str, Any]:
    """What a response repeats of its request; of the tools, those that the model was told of."""
    return {
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "reasoning": {"effort": asked.reasoning.effort if asked.reasoning else None, "summary": None},
        "text": {"format": (asked.text and asked.text.format) or {"type": "text"}},
        "tool_choice": asked.tool_choice or "auto",
        "tools": [{"strict": None, "parameters": None, **tool} for tool in asked.functions()],
        "user": asked.user,
        "metadata": asked.metadata or {},
    }
