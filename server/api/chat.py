"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
import uuid

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.api.conversation import prepared_generation
from turnout.server.api.respond import respond
from turnout.server.http.bodies.body import read_body
from turnout.server.http.openapi.operation import EVENTS, operation
from turnout.server.protocol.chat import ChatRequest
from turnout.server.protocol.responses import ChatCompletion
from turnout.server.renderers.chat import ChatRenderer
from turnout.server.renderers.openai import ResponseOptions
from turnout.server.renderers.token_names import TokenNames

__all__ = ["chat"]


@operation(body=ChatRequest, answer=ChatCompletion, streams=EVENTS, generates=True)
async def chat(request: Request) -> Response:
    """Answers a conversation."""
    context = context_of(request)
    body = await read_body(request, ChatRequest, limit=context.config.max_body_size)
    context = context.of(body.model)
    id = f"chatcmpl-{uuid.uuid4().hex}"
    async with context.assigned_arm(request, body.user, id, stream=bool(body.stream)) as arm:
        with body.client_field_names():
            generation = await prepared_generation(request, context, arm, body, id)
            renderer = ChatRenderer(
                id=id,
                model=context.model_name,
                created=int(time.time()),
                fingerprint=arm.client.ready.fingerprint or None,
                names=TokenNames(arm.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
                options=ResponseOptions.of(body),
            )
            return await respond(request, generation, renderer, stream=bool(body.stream))
