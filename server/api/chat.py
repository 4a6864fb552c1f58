"""``POST /v1/chat/completions``."""

from __future__ import annotations

import asyncio
import time
import uuid

from starlette.requests import Request
from starlette.responses import Response

from turnout.core.types.request import RequestSpec
from turnout.server.ab.arms import ServedArm
from turnout.server.api.chat_answer import ChatAnswer
from turnout.server.api.context import context_of
from turnout.server.api.generation import Generation
from turnout.server.api.respond import respond
from turnout.server.http.auth import client_of
from turnout.server.http.body import read_body
from turnout.server.protocol.chat import ChatRequest
from turnout.text.bad_words import with_bad_words

__all__ = ["chat"]


async def chat(request: Request) -> Response:
    context = context_of(request)
    asked = await read_body(request, ChatRequest, limit=context.config.max_body_size)
    context.check_model(asked.model)
    id = f"chatcmpl-{uuid.uuid4().hex}"
    with asked.own_names(), context.assigned(request, asked.user, id) as arm:
        spec = await asyncio.to_thread(_request, arm, asked, id, client_of(request))
        answer = ChatAnswer(
            id=id,
            model=context.model_name,
            created=int(time.time()),
            tokenizer=arm.tokenizer,
            logprobs=bool(asked.logprobs),
        )
        metrics = context.metrics[arm.name]
        generation = Generation(arm.client, arm.tokenizer, metrics, [spec], asked.n or 1)
        return await respond(request, asked, generation, answer)


def _request(arm: ServedArm, asked: ChatRequest, id: str, client: str) -> RequestSpec:
    params = with_bad_words(asked.sampling_params(arm.client.ready.defaults), arm.tokenizer)
    params = params.generating()
    return asked.request_spec(id, _prompt(arm, asked), params, client)


def _prompt(arm: ServedArm, asked: ChatRequest) -> list[int]:
    """The tokens of a conversation; runs in a thread."""
    text = arm.tokenizer.chat_text(
        asked.template_messages(),
        add_generation_prompt=asked.add_generation_prompt,
        continue_final_message=asked.continue_final_message,
        **(asked.chat_template_kwargs or {}),
    )
    return arm.tokenizer.encode(text, add_special_tokens=False, limit=arm.client.ready.max_model_len)
