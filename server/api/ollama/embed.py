"""``POST /api/embed`` and ``POST /api/embeddings``."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.api.ollama.answer import LATEST, load_or_unload
from turnout.server.api.pooling.serving import Asked, PooledTexts, answered, numbers
from turnout.server.api.pooling.texts import Texts, facts_of
from turnout.server.http.bodies.body import read_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import operation
from turnout.server.protocol.ollama.embed import Embedded, OllamaEmbed, OllamaEmbeddings, OneEmbedded
from turnout.text.prompt.named_prompt import prompt_named

__all__ = ["embed", "embeddings"]


@operation(body=OllamaEmbed, answer=Embedded, generates=True)
async def embed(request: Request) -> Response:
    """Embeds texts."""
    began = time.perf_counter_ns()
    context = context_of(request)
    body = await read_body(request, OllamaEmbed, limit=context.config.max_body_size, any_media_type=True)
    context = context.of(body.model, tag=LATEST)
    model = body.model or context.model_name
    if not body.input:
        await load_or_unload(request, context, body.keep_alive)
        return JsonResponse(Embedded(model, [], time.perf_counter_ns() - began, 0, 0))
    id = Asked.new_id("embd")
    async with context.assigned_arm(request, None, id) as arm:
        context.keep_loaded(body.keep_alive)
        asked = Asked(request, context, body, arm, id)
        pooled = await _pooled(asked, body)

        def answer(_: int) -> Embedded:
            vectors = [numbers(each) for each in pooled.found]
            return Embedded(model, vectors, time.perf_counter_ns() - began, 0, pooled.tokens)

        return await answered(asked, pooled.numbers, answer)


@operation(body=OllamaEmbeddings, answer=OneEmbedded, generates=True)
async def embeddings(request: Request) -> Response:
    """Embeds a text."""
    context = context_of(request)
    body = await read_body(request, OllamaEmbeddings, limit=context.config.max_body_size, any_media_type=True)
    context = context.of(body.model, tag=LATEST)
    if not body.prompt:
        await load_or_unload(request, context, body.keep_alive)
        return JsonResponse(OneEmbedded([]))
    id = Asked.new_id("embd")
    async with context.assigned_arm(request, None, id) as arm:
        context.keep_loaded(body.keep_alive)
        asked = Asked(request, context, body, arm, id)
        pooled = await _pooled(asked, body.as_embed())
        return await answered(asked, pooled.numbers, lambda _: OneEmbedded(numbers(pooled.found[0])))


async def _pooled(asked: Asked, body: OllamaEmbed) -> PooledTexts:
    facts = facts_of(asked.arm)
    longest = asked.arm.client.ready.max_model_len if body.truncate else None
    texts = Texts(body.input, body.pooling_params(), prompt_named(facts, None))
    return await asked.pooled(texts, "input", longest)
