"""``POST /infill``: fills in the middle of a file, for editors."""

from __future__ import annotations

import uuid
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.server.api.context import context_of
from turnout.server.api.prompts import check_generates, prepared_prompts
from turnout.server.api.respond import respond
from turnout.server.fleet.arms import ServedArm
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import client_of
from turnout.server.http.bodies.body import read_body
from turnout.server.http.bodies.values import validate_body
from turnout.server.http.disconnect import while_connected
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import operation
from turnout.server.http.pieces import PieceResponse
from turnout.server.http.request_memory import held_memory
from turnout.server.protocol.field_names import client_names
from turnout.server.protocol.infill import (
    NEVER,
    Infilled,
    InfillPrompt,
    InfillRequest,
    bounded,
    chosen_fields,
)
from turnout.server.renderers.infill import InfillRenderer
from turnout.text.prompt.fill_in import NO_FILL_IN, FillIn, fill_in_of
from turnout.text.tokenizer import Tokenizer

__all__ = ["infill"]


@operation(body=InfillRequest, answer=Infilled, streams="text/event-stream", generates=True)
async def infill(request: Request) -> Response:
    """Fills in what is missing between two texts."""
    context = context_of(request)
    asked = await read_body(request, InfillRequest, limit=context.config.max_body_size)
    context = context.of(asked.model)
    renderer = InfillRenderer(context.model_name, asked.response_fields)
    id = f"infill-{uuid.uuid4().hex}"
    async with context.assigned_arm(request, None, id, stream=asked.stream) as arm:
        body = await while_connected(
            request.receive, context.texts.run(asked.size, partial(_completion, arm, asked))
        )
        client, memory = client_of(request), held_memory(request)
        with body.client_field_names():
            with memory.growing():
                preparing = prepared_prompts(context.texts, arm, body, id, client, memory)
                prepared = await while_connected(request.receive, preparing)
            metrics, only = context.metrics[arm.name], asked.n_predict == 0
            requests = prepared.requests
            generation = Generation(arm.client, arm.tokenizer, metrics, requests, 1, prompt_only=only)
            response = await respond(request, generation, renderer, stream=asked.stream)
        if asked.stream or not asked.response_fields:
            return response
        whole = await response.gathered() if isinstance(response, PieceResponse) else bytes(response.body)
        return JsonResponse(chosen_fields(msgspec.json.decode(whole, type=Infilled), asked.response_fields))


def _completion(arm: ServedArm, asked: InfillRequest) -> InfillPrompt:
    check_generates(arm)
    ready = arm.client.ready
    fill_in = fill_in_of(arm.tokenizer, ready.max_model_len)
    if fill_in is None:
        raise RequestError(NO_FILL_IN, "model")
    ends = [token for token in fill_in.ends if token < ready.vocab_size]
    never = [*ends, *ready.eos_token_ids] if asked.ignore_eos else []
    biases = {**_biases(arm.tokenizer, asked), **dict.fromkeys(never, NEVER)}
    prompt = _prompt(fill_in, asked, ready.max_model_len)
    return validate_body(asked.fields(prompt, ends, biases), InfillPrompt, may_be_deep=False)


def _prompt(fill_in: FillIn, asked: InfillRequest, context: int) -> list[int]:
    """The tokens of the prompt, with as many of the other files as fit beside `n_predict`, the last ones.

    Raises RequestError where it does not fit without them.
    """
    with client_names({"prompt": "input_prefix"}):
        prefix = fill_in.tokens(asked.input_prefix)
    with client_names({"prompt": "input_suffix"}):
        suffix = fill_in.suffix(asked.input_suffix)
    own = fill_in.prompt(prefix, suffix, asked.prompt)
    if len(own) >= context:
        texts = ("input_prefix", "input_suffix", "prompt")
        raise RequestError(
            f"prefix, suffix and prompt have {len(own):,} tokens, but the context has room for "
            f"{context - 1:,} beside one to generate; send less of the file",
            max(texts, key=lambda name: len(getattr(asked, name))),
        )
    with client_names({"prompt": "input_extra"}):
        files = [fill_in.file(file.filename, file.text) for file in asked.input_extra]
    return fill_in.behind(files, own, context - max(1, asked.n_predict))


def _biases(tokenizer: Tokenizer, asked: InfillRequest) -> dict[int, float]:
    """The bias of each token; those of one that is named several times are added, as llama.cpp does."""
    found: dict[int, float] = {}
    for token, bias in asked.logit_bias or ():
        for id in tokenizer.encode_literally(token) if isinstance(token, str) else (token,):
            found[id] = bounded(found.get(id, 0.0) + bias)
    return found
