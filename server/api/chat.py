"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.types.request import RequestSpec
from turnout.server.ab.arms import ServedArm
from turnout.server.api.context import context_of
from turnout.server.api.request_sizes import check_copies, check_logprobs
from turnout.server.api.respond import respond
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import Client, client_of
from turnout.server.http.bodies.body import read_body
from turnout.server.http.disconnect import while_connected
from turnout.server.protocol.chat import ChatOptions, ChatRequest, Message, text_size
from turnout.server.renderers.chat import ChatRenderer
from turnout.server.renderers.openai import ResponseOptions
from turnout.server.renderers.token_names import TokenNames
from turnout.text.engine_params import engine_params
from turnout.text.model_format import ModelFormat
from turnout.text.output.call_grammar import Wanted
from turnout.text.output.splitter import OutputSplitter
from turnout.text.template_process import TemplateProcesses

__all__ = ["chat", "conversation_text"]


class _Prepared(NamedTuple):
    """A chat request, ready for the engine."""

    spec: RequestSpec
    splitter: Callable[[], OutputSplitter] | None


async def chat(request: Request) -> Response:
    """Answers a conversation."""
    context = context_of(request)
    body = await read_body(request, ChatRequest, limit=context.config.max_body_size)
    context.check_model(body.model)
    id = f"chatcmpl-{uuid.uuid4().hex}"
    with body.client_field_names(), context.assigned_arm(request, body.user, id) as arm:
        work = partial(_prepared, context.templates, arm, body, id, client_of(request, body.user))
        prepared = await while_connected(request.receive, context.texts.run(text_size(body.messages), work))
        renderer = ChatRenderer(
            id=id,
            model=context.model_name,
            created=int(time.time()),
            fingerprint=arm.client.ready.fingerprint or None,
            names=TokenNames(arm.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
            options=ResponseOptions.of(body),
        )
        generation = Generation(
            arm.client,
            arm.tokenizer,
            context.metrics[arm.name],
            [prepared.spec],
            body.n or 1,
            token_ids=bool(body.return_token_ids),
            splitter=prepared.splitter,
            shown=arm.format.shown if prepared.splitter is not None else frozenset(),
        )
        return await respond(request, generation, renderer, stream=bool(body.stream))


def _prepared(
    templates: TemplateProcesses, arm: ServedArm, body: ChatRequest, id: str, client: Client
) -> _Prepared:
    params = engine_params(body.sampling_params(arm.client.ready.defaults), arm.tokenizer)
    check_copies(params, 1)
    text = conversation_text(templates, arm.format, body.messages, body, body.described())
    limit = arm.client.ready.max_model_len
    prompt = arm.tokenizer.encode(text, add_special_tokens=body.add_special_tokens, limit=limit)
    tools, begun = body.callable_tools(), arm.format.begun(text)
    wanted = Wanted(tools, "required" if body.must_call else "auto", not body.one_call)
    params = msgspec.structs.replace(
        params, structured_outputs=arm.format.form(wanted, params.structured_outputs, begun)
    )
    spec = body.request_spec(id, prompt, params, *client)
    check_logprobs([spec], limit)
    return _Prepared(spec, arm.format.splitter(tools=bool(tools), begun=begun))


def conversation_text(
    templates: TemplateProcesses,
    format: ModelFormat,
    messages: Sequence[Message],
    options: ChatOptions,
    tools: Sequence[dict[str, Any]] = (),
) -> str:
    """What the chat template makes of a conversation, and of tools. Raises RequestError."""
    told, variables = format.conversation(
        [message.model_dump(exclude_none=True) for message in messages], tools
    )
    return templates.render(
        format.tokenizer.chat_template,
        told,
        add_generation_prompt=options.add_generation_prompt,
        continue_final_message=options.continue_final_message,
        **variables,
        **(options.chat_template_kwargs or {}),
    )
