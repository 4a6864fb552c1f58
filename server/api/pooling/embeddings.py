"""``POST /v1/embeddings`` and ``POST /pooling``."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.server.api.context import context_of
from turnout.server.api.conversation import conversation_text, text_work
from turnout.server.api.pooling.serving import Asked, PooledTexts, answered, in_base64, numbers
from turnout.server.api.pooling.texts import Texts, facts_of
from turnout.server.http.bodies.body import read_body
from turnout.server.http.disconnect import while_connected
from turnout.server.http.openapi.operation import operation
from turnout.server.protocol.chat import ChatOptions
from turnout.server.protocol.pooling.answers import Embedding, EmbeddingList, PooledList, PooledText
from turnout.server.protocol.pooling.requests import EmbeddedRequest, EmbeddingRequest, PoolingRequest
from turnout.text.prompt.named_prompt import prompt_named

__all__ = ["embeddings", "pooling"]


@operation(body=EmbeddingRequest, answer=EmbeddingList, generates=True)
async def embeddings(request: Request) -> Response:
    """Embeds texts."""
    context = context_of(request)
    body = await read_body(request, EmbeddingRequest, limit=context.config.max_body_size)
    context = context.of(body.model)
    id = Asked.new_id("embd")
    async with context.assigned_arm(request, body.user, id) as arm:
        asked = Asked(request, context, body, arm, id)
        pooled = await _pooled(asked, body, body.task)
        # OpenAI's client asks for base64 by itself, and makes one vector of what it gets.
        show = in_base64 if body.encoding_format == "base64" and not _per_token(pooled) else numbers

        def answer(created: int) -> EmbeddingList:
            data = [Embedding(number, show(each)) for number, each in enumerate(pooled.found)]
            return EmbeddingList(id, created, context.model_name, data, pooled.usage)

        return await answered(asked, pooled.numbers, answer)


@operation(body=PoolingRequest, answer=PooledList, generates=True)
async def pooling(request: Request) -> Response:
    """Shows what texts are pooled to: embeddings, one for each token, or scores."""
    context = context_of(request)
    body = await read_body(request, PoolingRequest, limit=context.config.max_body_size)
    context = context.of(body.model)
    id = Asked.new_id("pool")
    async with context.assigned_arm(request, body.user, id) as arm:
        asked = Asked(request, context, body, arm, id)
        pooled = await _pooled(asked, body)
        show = in_base64 if body.encoding_format == "base64" else numbers

        def answer(created: int) -> PooledList:
            data = [PooledText(number, show(each)) for number, each in enumerate(pooled.found)]
            return PooledList(id, created, context.model_name, data, pooled.usage)

        return await answered(asked, pooled.numbers, answer)


async def _pooled(asked: Asked, body: EmbeddedRequest, task: str | None = None) -> PooledTexts:
    """task: another name of the prompt, which holds where `body` names none."""
    facts, params = facts_of(asked.arm), body.pooling_params()
    if (body.messages is None) == (not body.input):
        raise RequestError("either an input or messages are expected", "input")
    if not body.messages:
        if task is None or body.prompt_name is not None:
            before = prompt_named(facts, body.prompt_name, body.input_type)
        else:
            before = prompt_named(facts, task, field="task")
        return await asked.pooled(Texts(body.input, params, before, body.add_special_tokens))
    if not asked.arm.tokenizer.has_chat_template:
        raise RequestError(
            "this model has no chat template, so it cannot embed a conversation; send input", "messages"
        )
    context, messages = asked.context, body.messages
    options = ChatOptions(add_generation_prompt=False)
    render = partial(conversation_text, context.templates, asked.arm.format, messages, options)
    size = text_work(asked.request, messages)
    text = await while_connected(asked.request.receive, context.texts.run(size, render))
    return await asked.pooled(Texts([text], params, special=False), "messages")


def _per_token(pooled: PooledTexts) -> bool:
    return any(len(each.shape) > 1 for each in pooled.found)
