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
from turnout.server.api.context import context_of
from turnout.server.api.respond import respond
from turnout.server.generation.generation import Generation
from turnout.server.http.auth import client_of
from turnout.server.http.body import read_body
from turnout.server.protocol.completions import CompletionRequest, Prompt
from turnout.server.renderers.completions import CompletionRenderer
from turnout.server.renderers.openai import Wishes
from turnout.server.renderers.token_names import TokenNames
from turnout.text.engine_params import engine_params
from turnout.text.tokenizer import Tokenizer

__all__ = ["completions"]


async def completions(request: Request) -> Response:
    """Continues prompts."""
    context = context_of(request)
    body = await read_body(request, CompletionRequest, limit=context.config.max_body_size)
    context.check_model(body.model)
    id = f"cmpl-{uuid.uuid4().hex}"
    with body.client_field_names(), context.assigned_arm(request, body.user, id) as arm:
        # In a thread: other clients are served while a long prompt is tokenized.
        requests = await asyncio.to_thread(_requests, arm, body, id, client_of(request))
        echoes = await asyncio.to_thread(_echoes, arm.tokenizer, body)
        renderer = CompletionRenderer(
            id=id,
            model=context.model_name,
            created=int(time.time()),
            fingerprint=arm.client.ready.fingerprint or None,
            names=TokenNames(arm.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
            wishes=Wishes.of(body),
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
        )
        return await respond(request, generation, renderer, stream=bool(body.stream))


def _requests(arm: ServedArm, body: CompletionRequest, id: str, client: str) -> list[RequestSpec]:
    ready = arm.client.ready
    params = engine_params(body.sampling_params(ready.defaults), arm.tokenizer)
    prompts = [
        _tokens(arm.tokenizer, prompt, body.add_special_tokens, ready.max_model_len) for prompt in body.prompt
    ]
    return [
        body.request_spec(
            f"{id}-{number}", prompt, _fitted(body, params, ready.max_model_len - len(prompt)), client
        )
        for number, prompt in enumerate(prompts)
    ]


def _fitted(body: CompletionRequest, params: SamplingParams, room: int) -> SamplingParams:
    """`params`, with the API's default of 16 tokens lowered to `room` where fewer fit.

    Only a `max_tokens` that the client set is refused for being too large.
    """
    default = params.max_tokens if body.max_tokens is None else None
    if default is None or not max(1, params.min_tokens) <= room < default:
        return params
    return msgspec.structs.replace(params, max_tokens=room)


def _tokens(tokenizer: Tokenizer, prompt: Prompt, add_special_tokens: bool, limit: int) -> list[int]:
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, add_special_tokens=add_special_tokens, limit=limit)
    return prompt


def _echoes(tokenizer: Tokenizer, body: CompletionRequest) -> list[str]:
    """For each choice, what precedes its text."""
    texts = [_echo(tokenizer, prompt) if body.echo else "" for prompt in body.prompt]
    return [text for text in texts for _ in range(body.n or 1)]


def _echo(tokenizer: Tokenizer, prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
