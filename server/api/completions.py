"""``POST /v1/completions``."""

from __future__ import annotations

import asyncio
import time
import uuid

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.ab.arms import ServedArm
from turnout.server.api.completion_answer import CompletionAnswer
from turnout.server.api.context import context_of
from turnout.server.api.generation import Generation
from turnout.server.api.respond import respond
from turnout.server.http.auth import client_of
from turnout.server.http.body import read_body
from turnout.server.protocol.completions import CompletionRequest, Prompt
from turnout.text.bad_words import with_bad_words
from turnout.text.tokenizer import Tokenizer

__all__ = ["completions"]


async def completions(request: Request) -> Response:
    context = context_of(request)
    asked = await read_body(request, CompletionRequest, limit=context.config.max_body_size)
    context.check_model(asked.model)
    id = f"cmpl-{uuid.uuid4().hex}"
    with asked.own_names(), context.assigned(request, asked.user, id) as arm:
        # In a thread: other clients are served while a long prompt is tokenized.
        requests = await asyncio.to_thread(_requests, arm, asked, id, client_of(request))
        echoes = await asyncio.to_thread(_echoes, arm.tokenizer, asked)
        answer = CompletionAnswer(
            id=id,
            model=context.model_name,
            created=int(time.time()),
            tokenizer=arm.tokenizer,
            logprobs=asked.logprobs is not None,
            top_logprobs=asked.logprobs or 0,
            prompt_logprobs=asked.prompt_logprobs is not None,
            echoes=echoes,
        )
        metrics = context.metrics[arm.name]
        generation = Generation(arm.client, arm.tokenizer, metrics, requests, asked.n or 1)
        return await respond(request, asked, generation, answer)


def _requests(arm: ServedArm, asked: CompletionRequest, id: str, client: str) -> list[RequestSpec]:
    ready = arm.client.ready
    params = with_bad_words(asked.sampling_params(ready.defaults), arm.tokenizer).generating()
    prompts = [
        _tokens(arm.tokenizer, prompt, asked.add_special_tokens, ready.max_model_len)
        for prompt in asked.prompt
    ]
    return [
        asked.request_spec(
            f"{id}-{number}", prompt, _fitted(asked, params, ready.max_model_len - len(prompt)), client
        )
        for number, prompt in enumerate(prompts)
    ]


def _fitted(asked: CompletionRequest, params: SamplingParams, room: int) -> SamplingParams:
    """The API's default of 16 tokens is no wish: where fewer fit, it means those."""
    default = params.max_tokens if asked.max_tokens is None else None
    if default is None or not max(1, params.min_tokens) <= room < default:
        return params
    return msgspec.structs.replace(params, max_tokens=room)


def _tokens(tokenizer: Tokenizer, prompt: Prompt, add_special_tokens: bool, limit: int) -> list[int]:
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, add_special_tokens=add_special_tokens, limit=limit)
    return prompt


def _echoes(tokenizer: Tokenizer, asked: CompletionRequest) -> list[str]:
    texts = [_echo(tokenizer, prompt) if asked.echo else "" for prompt in asked.prompt]
    return [text for text in texts for _ in range(asked.n or 1)]


def _echo(tokenizer: Tokenizer, prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
