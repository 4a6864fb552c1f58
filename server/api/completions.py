"""``POST /v1/completions``."""

from __future__ import annotations

import time
import uuid

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.ab.arms import ServedArm
from turnout.server.api.context import context_of
from turnout.server.api.prompts import tokenized
from turnout.server.api.request_sizes import check_copies, check_logprobs, check_repetition
from turnout.server.api.respond import respond
from turnout.server.api.text_pool import TextPool
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import Client, client_of
from turnout.server.http.bodies.body import read_body
from turnout.server.http.disconnect import while_connected
from turnout.server.protocol.completions import CompletionRequest, Prompt
from turnout.server.renderers.completions import CompletionRenderer
from turnout.server.renderers.openai import ResponseOptions
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
        preparing = _prepared(context.texts, arm, body, id, client_of(request, body.user))
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
            most=arm.config.max_num_seqs,
        )
        return await respond(request, generation, renderer, stream=bool(body.stream))


async def _prepared(
    texts: TextPool, arm: ServedArm, body: CompletionRequest, id: str, client: Client
) -> tuple[list[RequestSpec], list[str]]:
    """The requests to the engine, one for each prompt, and for each choice what precedes its text."""
    ready, tokenizer = arm.client.ready, arm.tokenizer
    params = await texts.run(0, lambda: engine_params(body.sampling_params(ready.defaults), tokenizer))
    check_copies(params, len(body.prompt))
    prompts = await tokenized(
        texts, tokenizer, body.prompt, special=body.add_special_tokens, limit=ready.max_model_len
    )
    requests = [
        body.request_spec(
            f"{id}-{number}", prompt, _fitted(body, params, ready.max_model_len - len(prompt)), *client
        )
        for number, prompt in enumerate(prompts)
    ]
    check_logprobs(requests, ready.max_model_len)
    if body.return_token_ids:
        check_repetition("return_token_ids", prompts, params.n)
    if not body.echo:
        return requests, [""] * (len(prompts) * (body.n or 1))
    echoes = await texts.run(
        sum(map(len, prompts)), lambda: [_echo(tokenizer, prompt) for prompt in body.prompt]
    )
    check_repetition("echo", echoes, params.n)
    return requests, [echo for echo in echoes for _ in range(body.n or 1)]


def _fitted(body: CompletionRequest, params: SamplingParams, room: int) -> SamplingParams:
    """`params`, with the API's default of 16 tokens lowered to `room` where fewer fit.

    Only a `max_tokens` that the client set is refused for being too large.
    """
    default = params.max_tokens if body.max_tokens is None else None
    if default is None or not max(1, params.min_tokens) <= room < default:
        return params
    return msgspec.structs.replace(params, max_tokens=room)


def _echo(tokenizer: Tokenizer, prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
