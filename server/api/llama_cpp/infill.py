"""``POST /infill``: fills in the middle of a file, for editors."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.server.api.context import context_of
from turnout.server.api.prompts import prepared_prompts
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
from turnout.server.protocol.infill import Infilled, InfillPrompt, InfillRequest
from turnout.server.renderers.infill import InfillRenderer
from turnout.text.prompt.fill_in import FillIn, needed_fill_in

__all__ = ["infill"]


@operation(body=InfillRequest, answer=Infilled, streams="text/event-stream", generates=True)
async def infill(request: Request) -> Response:
    """Fills in what is missing between two texts."""
    context = context_of(request)
    asked = await read_body(request, InfillRequest, limit=context.config.max_body_size)
    context = context.of(asked.model)
    renderer, id = InfillRenderer(context.model_name), f"infill-{uuid.uuid4().hex}"
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
        if asked.stream or asked.response_fields is None:
            return response
        whole = await response.gathered() if isinstance(response, PieceResponse) else bytes(response.body)
        return JsonResponse(_chosen(msgspec.json.decode(whole), asked.response_fields))


def _completion(arm: ServedArm, asked: InfillRequest) -> InfillPrompt:
    ready = arm.client.ready
    fill_in = needed_fill_in(arm.tokenizer, "input_suffix", ready.max_model_len)
    ends = [token for token in fill_in.ends if token < ready.vocab_size]
    prompt = _prompt(fill_in, asked, ready.max_model_len)
    return validate_body(asked.fields(prompt, ends), InfillPrompt, may_be_deep=False)


def _prompt(fill_in: FillIn, asked: InfillRequest, context: int) -> list[int]:
    """The tokens of the prompt, with as many of the other files as fit, the last ones.

    Raises RequestError where it does not fit without them.
    """
    own = fill_in.prompt(asked.input_prefix, fill_in.suffix(asked.input_suffix), asked.prompt)
    room = context - max(1, asked.n_predict)
    if len(own) > room:
        raise RequestError(
            f"prefix, suffix and prompt have {len(own):,} tokens, but the context has room for {room:,} "
            "beside n_predict; send less of the file",
            "input_prefix",
        )
    files = [fill_in.file(file.filename, file.text) for file in asked.input_extra]
    return fill_in.behind(files, own, room)


def _chosen(body: dict[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """These fields of a response; those that it does not have are left out. A slash leads into a field."""
    found: dict[str, Any] = {}
    for path in fields:
        value: Any = body
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found
