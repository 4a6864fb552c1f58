"""``POST /api/generate``."""

from __future__ import annotations

import uuid

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import Context
from turnout.server.api.conversation import prepared_generation, translated
from turnout.server.api.ollama.answer import check_thinking, loaded, read_request
from turnout.server.api.prompts import prepared_prompts
from turnout.server.api.respond import respond
from turnout.server.fleet.arms import ServedArm
from turnout.server.fleet.models.waiting import entry_of
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import client_of
from turnout.server.http.bodies.values import validate_body
from turnout.server.http.disconnect import while_connected
from turnout.server.http.openapi.operation import operation
from turnout.server.http.request_memory import held_memory
from turnout.server.protocol.ollama.requests import ChatOfOllama, OllamaGenerate, PromptOfOllama
from turnout.server.protocol.ollama.responses import GeneratePart
from turnout.server.renderers.ollama import NDJSON, OllamaGenerateRenderer
from turnout.server.renderers.token_names import TokenNames
from turnout.text.prompt.go_template import render

__all__ = ["generate"]


@operation(body=OllamaGenerate, answer=GeneratePart, streams=NDJSON, generates=True)
async def generate(request: Request) -> Response:
    """Answers a prompt, or continues it."""
    asked, context = await read_request(request, OllamaGenerate)
    asked.check()
    if not (asked.prompt or asked.suffix):
        return await loaded(request, context, asked, response="")
    id = f"ollama-{uuid.uuid4().hex}"
    async with context.assigned_arm(request, None, id) as arm:
        context.keep_loaded(asked.keep_alive)
        check_thinking(arm, asked)
        renderer = OllamaGenerateRenderer(
            asked.model, TokenNames(arm.tokenizer), bool(asked.logprobs), entry_of(request).waited
        )
        if _is_continued(arm, asked):
            generation = await _continued(request, context, arm, asked, id)
        else:
            generation = await _answered(request, context, arm, asked, id)
        if not asked.raw:
            generation.token_ids = True
            renderer.context = list(generation.requests[0].prompt)
        return await respond(request, generation, renderer, stream=asked.stream)


def _is_continued(arm: ServedArm, asked: OllamaGenerate) -> bool:
    """No chat template makes the prompt: the client does, or the model has none."""
    return bool(asked.raw or asked.suffix or asked.template or not arm.tokenizer.has_chat_template)


async def _answered(
    request: Request, context: Context, arm: ServedArm, asked: OllamaGenerate, id: str
) -> Generation:
    """A message, of which the chat template makes the prompt."""
    body = await translated(request, asked.chat_fields, ChatOfOllama)
    with body.client_field_names():
        return await prepared_generation(
            request, context, arm, body, id, as_fits=True, before=asked.context or ()
        )


async def _continued(
    request: Request, context: Context, arm: ServedArm, asked: OllamaGenerate, id: str
) -> Generation:
    """A prompt, as it is."""
    body = validate_body(asked.prompt_fields(_prompt(asked)), PromptOfOllama, may_be_deep=False)
    client, memory = client_of(request), held_memory(request)
    with body.client_field_names(), memory.growing():
        preparing = prepared_prompts(context.texts, arm, body, id, client, memory, before=asked.context or ())
        prepared = await while_connected(request.receive, preparing)
    metrics = context.metrics[arm.name]
    return Generation(arm.client, arm.tokenizer, metrics, prepared.requests, 1)


def _prompt(asked: OllamaGenerate) -> str:
    if asked.template:
        told = {"System": asked.system, "Prompt": asked.prompt, "Suffix": asked.suffix}
        return render(asked.template, told)
    return f"{asked.system}\n\n{asked.prompt}" if asked.system and not asked.raw else asked.prompt
