"""``POST /v1/completions``."""

from __future__ import annotations

import time
import uuid

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.api.prompts import prepared_prompts
from turnout.server.api.respond import respond
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import client_of
from turnout.server.http.bodies.body import read_body
from turnout.server.http.disconnect import while_connected
from turnout.server.http.openapi.operation import EVENTS, operation
from turnout.server.http.request_memory import held_memory
from turnout.server.protocol.completions import CompletionRequest
from turnout.server.protocol.responses import Completion
from turnout.server.renderers.completions import CompletionRenderer
from turnout.server.renderers.openai import ResponseOptions
from turnout.server.renderers.token_names import TokenNames

__all__ = ["completions"]


@operation(body=CompletionRequest, answer=Completion, streams=EVENTS, generates=True)
async def completions(request: Request) -> Response:
    """Continues prompts."""
    context = context_of(request)
    body = await read_body(request, CompletionRequest, limit=context.config.max_body_size)
    context = context.of(body.model)
    id = f"cmpl-{uuid.uuid4().hex}"
    async with context.assigned_arm(request, body.user, id, stream=bool(body.stream)) as arm:
        with body.client_field_names():
            memory, client = held_memory(request), client_of(request, body.user)
            with memory.growing():
                preparing = prepared_prompts(context.texts, arm, body, id, client, memory)
                requests, echoes = await while_connected(request.receive, preparing)
            renderer = CompletionRenderer(
                id=id,
                model=context.model_name,
                created=int(time.time()),
                fingerprint=arm.client.ready.fingerprint or None,
                names=TokenNames(arm.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
                options=ResponseOptions.of(body),
                top_logprobs=body.logprobs or 0,
                prompt_logprobs=body.prompt_logprobs is not None,
                echoes=echoes,
            )
            metrics = context.metrics[arm.name]
            generation = Generation(
                arm.client,
                arm.tokenizer,
                metrics,
                requests,
                body.n or 1,
                token_ids=bool(body.return_token_ids),
                prompt_only=body.prompt_only,
                portions=context.portions[arm.name],
            )
            return await respond(request, generation, renderer, stream=bool(body.stream))
