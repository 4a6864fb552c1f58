"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from turnout.core.types.request import RequestSpec
from turnout.server.ab.arms import ServedArm
from turnout.server.api.context import context_of
from turnout.server.api.request_sizes import check_copies, check_logprobs
from turnout.server.api.respond import respond
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import client_of
from turnout.server.http.bodies.body import read_body
from turnout.server.http.disconnect import while_connected
from turnout.server.protocol.chat import ChatOptions, ChatRequest, Message, text_size
from turnout.server.renderers.chat import ChatRenderer
from turnout.server.renderers.openai import ResponseOptions
from turnout.server.renderers.token_names import TokenNames
from turnout.text.engine_params import engine_params
from turnout.text.template_process import TemplateProcesses
from turnout.text.tokenizer import Tokenizer

__all__ = ["chat", "conversation_text"]


async def chat(request: Request) -> Response:
    """Answers a conversation."""
    context = context_of(request)
    body = await read_body(request, ChatRequest, limit=context.config.max_body_size)
    context.check_model(body.model)
    id = f"chatcmpl-{uuid.uuid4().hex}"
    with body.client_field_names(), context.assigned_arm(request, body.user, id) as arm:
        work = partial(_request, context.templates, arm, body, id, client_of(request, body.user))
        spec = await while_connected(request.receive, context.texts.run(text_size(body.messages), work))
        renderer = ChatRenderer(
            id=id,
            model=context.model_name,
            created=int(time.time()),
            fingerprint=arm.client.ready.fingerprint or None,
            names=TokenNames(arm.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
            options=ResponseOptions.of(body),
        )
        metrics = context.metrics[arm.name]
        tokens = bool(body.return_token_ids)
        generation = Generation(arm.client, arm.tokenizer, metrics, [spec], body.n or 1, token_ids=tokens)
        return await respond(request, generation, renderer, stream=bool(body.stream))


def _request(
    templates: TemplateProcesses, arm: ServedArm, body: ChatRequest, id: str, client: str
) -> RequestSpec:
    params = engine_params(body.sampling_params(arm.client.ready.defaults), arm.tokenizer)
    check_copies(params, 1)
    spec = body.request_spec(id, _prompt(templates, arm, body), params, client)
    check_logprobs([spec], arm.client.ready.max_model_len)
    return spec


def _prompt(templates: TemplateProcesses, arm: ServedArm, body: ChatRequest) -> list[int]:
    """The tokens of a conversation."""
    text = conversation_text(templates, arm.tokenizer, body.messages, body)
    limit = arm.client.ready.max_model_len
    return arm.tokenizer.encode(text, add_special_tokens=body.add_special_tokens, limit=limit)


def conversation_text(
    templates: TemplateProcesses, tokenizer: Tokenizer, messages: Sequence[Message], options: ChatOptions
) -> str:
    """What the chat template makes of a conversation. Raises RequestError."""
    return templates.render(
        tokenizer.chat_template,
        [message.model_dump(exclude_none=True) for message in messages],
        add_generation_prompt=options.add_generation_prompt,
        continue_final_message=options.continue_final_message,
        **(options.chat_template_kwargs or {}),
    )
