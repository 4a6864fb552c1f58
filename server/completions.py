"""``POST /v1/completions``."""

from __future__ import annotations

import asyncio
import time
import uuid

from starlette.requests import Request
from starlette.responses import Response

from turnout.core.request import RequestSpec
from turnout.server.body import read_body
from turnout.server.completion_answer import CompletionAnswer
from turnout.server.context import Context, context_of
from turnout.server.generation import Generation
from turnout.server.protocol.completions import CompletionRequest, Prompt
from turnout.server.respond import respond
from turnout.text.tokenizer import Tokenizer

__all__ = ["completions"]


async def completions(request: Request) -> Response:
    context = context_of(request)
    asked = await read_body(request, CompletionRequest, limit=context.config.max_body_size)
    context.check_model(asked.model)
    id = f"cmpl-{uuid.uuid4().hex}"
    # In a thread: other clients are served while a long prompt is tokenized.
    requests = await asyncio.to_thread(_requests, context, asked, id)
    answer = CompletionAnswer(
        id=id,
        model=context.model_name,
        created=int(time.time()),
        tokenizer=context.tokenizer,
        logprobs=asked.logprobs is not None,
        echoes=_echoes(context.tokenizer, asked),
    )
    return await respond(request, asked, Generation(context.client, context.tokenizer, requests), answer)


def _requests(context: Context, asked: CompletionRequest, id: str) -> list[RequestSpec]:
    params = asked.sampling_params(context.client.ready.defaults)
    return [
        RequestSpec(
            id=f"{id}-{number}",
            prompt=_tokens(context.tokenizer, prompt, asked.add_special_tokens),
            params=params,
            seed=asked.concrete_seed(),
            priority=asked.priority,
            client=asked.user or "",
        )
        for number, prompt in enumerate(asked.prompt)
    ]


def _tokens(tokenizer: Tokenizer, prompt: Prompt, add_special_tokens: bool) -> list[int]:
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
    return prompt


def _echoes(tokenizer: Tokenizer, asked: CompletionRequest) -> list[str]:
    return [
        _echo(tokenizer, prompt) if asked.echo else "" for prompt in asked.prompt for _ in range(asked.n or 1)
    ]


def _echo(tokenizer: Tokenizer, prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
