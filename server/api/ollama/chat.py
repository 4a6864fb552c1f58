"""``POST /api/chat``."""

from __future__ import annotations

import uuid

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.conversation import prepared_generation, translated
from turnout.server.api.ollama.answer import check_thinking, loaded, read_request
from turnout.server.api.respond import respond
from turnout.server.fleet.models.waiting import entry_of
from turnout.server.http.openapi.operation import operation
from turnout.server.protocol.ollama.requests import ChatOfOllama, OllamaChat
from turnout.server.protocol.ollama.responses import ChatPart
from turnout.server.renderers.ollama import NDJSON, OllamaChatRenderer
from turnout.server.renderers.token_names import TokenNames

__all__ = ["chat"]


@operation(body=OllamaChat, answer=ChatPart, streams=NDJSON, generates=True)
async def chat(request: Request) -> Response:
    """Answers a conversation."""
    asked, context = await read_request(request, OllamaChat)
    if not asked.messages:
        return await loaded(request, context, asked, message={"role": "assistant", "content": ""})
    body, id = await translated(request, asked.chat_fields, ChatOfOllama), f"ollama-{uuid.uuid4().hex}"
    async with context.assigned_arm(request, None, id) as arm:
        context.keep_loaded(asked.keep_alive)
        with body.client_field_names():
            check_thinking(arm, asked)
            renderer = OllamaChatRenderer(
                asked.model, TokenNames(arm.tokenizer), bool(asked.logprobs), entry_of(request).waited
            )
            generation = await prepared_generation(request, context, arm, body, id, as_fits=True)
            return await respond(request, generation, renderer, stream=asked.stream)
