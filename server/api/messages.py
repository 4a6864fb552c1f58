"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's API."""

from __future__ import annotations

import uuid
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.api.conversation import prepared_generation, rendered_tokens, text_work, translated
from turnout.server.api.respond import respond
from turnout.server.http.bodies.body import read_body
from turnout.server.http.disconnect import while_connected
from turnout.server.http.errors import ApiError
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import EVENTS, operation
from turnout.server.protocol.messages.answer import Message, TokenCount
from turnout.server.protocol.messages.request import ChatOfMessage, CountRequest, MessagesRequest
from turnout.server.renderers.messages import MessagesRenderer

__all__ = ["count_tokens", "messages"]


@operation(body=MessagesRequest, answer=Message, streams=EVENTS, generates=True)
async def messages(request: Request) -> Response:
    """Answers a conversation."""
    context = context_of(request)
    asked = await read_body(request, MessagesRequest, limit=context.config.max_body_size)
    context = context.of(asked.model)
    _refuse_threads(asked)
    body = await translated(request, asked.chat_fields, ChatOfMessage)
    id = f"msg_{uuid.uuid4().hex}"
    async with context.assigned_arm(request, body.user, id, stream=bool(asked.stream)) as arm:
        with body.client_field_names():
            generation = await prepared_generation(request, context, arm, body, id, as_fits=True)
            renderer = MessagesRenderer(id, context.model_name)
            return await respond(request, generation, renderer, stream=bool(asked.stream))


@operation(body=CountRequest, answer=TokenCount, generates=True)
async def count_tokens(request: Request) -> Response:
    """Counts the tokens of a conversation."""
    context = context_of(request)
    asked = await read_body(request, CountRequest, limit=context.config.max_body_size)
    context = context.of(asked.model)
    body = await translated(request, asked.chat_fields, ChatOfMessage)
    arm = await context.described(request)
    work = partial(rendered_tokens, context.templates, arm, body)
    count = await while_connected(request.receive, context.texts.run(text_work(request, body.messages), work))
    return JsonResponse(TokenCount(count))


def _refuse_threads(asked: MessagesRequest) -> None:
    """A client that is refused a thread sends the whole conversation; else it would send its latest part."""
    if asked.thread is not None:
        raise ApiError(
            400,
            "conversations are not kept here; send the whole conversation, without a thread",
            code="thread_unsupported_request",
        )
