"""Prepares a conversation for the engine: what every API that answers conversations does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from turnout.core import limits
from turnout.core.types.request import RequestSpec
from turnout.server.api.context import Context, context_of
from turnout.server.api.prompts import TOKEN_BYTES, check_generates, fitting
from turnout.server.api.request_sizes import check_copies, check_logprobs
from turnout.server.fleet.arms import ServedArm
from turnout.server.generation.generation import Generation
from turnout.server.http.access.auth import Client, client_of
from turnout.server.http.bodies.values import validate_body
from turnout.server.http.disconnect import while_connected
from turnout.server.http.request_memory import held_memory
from turnout.server.protocol.chat import ChatOptions, ChatRequest, Message, text_size
from turnout.server.protocol.field_names import client_names
from turnout.text.engine_params import engine_params
from turnout.text.model_format import ModelFormat
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.prompt.template_process import TemplateProcesses
from turnout.text.prompt.truncation import encoded, last_tokens

__all__ = ["conversation_text", "prepared_generation", "rendered_tokens", "text_work", "translated"]

BYTES_PER_CHARACTER = 8
"""Of a body as it is in memory. Its messages, its tools and their parts take time as well as their texts: as
many bytes of them as much as a character."""


async def prepared_generation(
    request: Request,
    context: Context,
    arm: ServedArm,
    body: ChatRequest,
    id: str,
    *,
    as_fits: bool = False,
    before: Sequence[int] = (),
) -> Generation:
    """Returns the generation of an answer. Raises RequestError.

    as_fits: `max_tokens` beyond the context means as many as fit; otherwise it is refused.
    before: tokens in front of the conversation.
    """
    client = client_of(request, body.user)
    work = partial(_prepared, context.templates, arm, body, id, client, as_fits, before)
    prepared = await while_connected(
        request.receive, context.texts.run(text_work(request, body.messages), work)
    )
    held_memory(request).add(TOKEN_BYTES * len(prepared.spec.prompt))
    return Generation(
        arm.client,
        arm.tokenizer,
        context.metrics[arm.name],
        [prepared.spec],
        body.n or 1,
        token_ids=bool(body.return_token_ids),
        splitter=prepared.splitter,
        reasons=arm.format.reasons,
        shown=arm.format.shown if prepared.splitter is not None else frozenset(),
    )


def text_work(request: Request, messages: Iterable[Message] = ()) -> int:
    """Characters whose tokenizing takes about as long as the texts, messages and tools of a request."""
    return max(text_size(messages), held_memory(request).size // BYTES_PER_CHARACTER)


async def translated(
    request: Request, fields: Callable[[], dict[str, Any]], kind: type[ChatRequest]
) -> ChatRequest:
    """Returns the chat request that another API's request means. Raises RequestError.

    fields: makes its fields; it takes time for a request of many items. kind: knows that API's names of them.
    """

    def translate() -> ChatRequest:
        made = fields()
        with client_names(kind.FIELDS):
            return validate_body(made, kind, may_be_deep=False)

    return await while_connected(
        request.receive, context_of(request).texts.run(text_work(request), translate)
    )


class _Prepared(NamedTuple):
    """A conversation, ready for the engine."""

    spec: RequestSpec
    splitter: Callable[[], OutputSplitter] | None


def _prepared(
    templates: TemplateProcesses,
    arm: ServedArm,
    body: ChatRequest,
    id: str,
    client: Client,
    as_fits: bool,
    before: Sequence[int],
) -> _Prepared:
    check_generates(arm)
    params = engine_params(body.sampling_params(arm.client.ready.defaults), arm.tokenizer)
    check_copies(params, 1)
    text = conversation_text(templates, arm.format, body.messages, body, body.described())
    limit = arm.client.ready.max_model_len
    last = last_tokens(body.truncate_prompt_tokens, limit, body.max_tokens)
    read = encoded(arm.tokenizer, text, special=body.add_special_tokens, limit=limit, last=last)
    prompt = arm.client.packed([*before, *read])
    wanted, said = body.wanted, (body.messages[-1].content or "") if body.continue_final_message else ""
    begun = arm.format.begun(text, said, must_call=body.must_call)
    asked = params.structured_outputs
    form = arm.format.form(wanted, asked, begun)
    params = msgspec.structs.replace(params, structured_outputs=form)
    if as_fits:
        params = fitting(params, limit - len(prompt))
    spec = body.request_spec(id, prompt, params, *client)
    check_logprobs([spec], limit)
    return _Prepared(spec, arm.format.splitter(wanted.tools, begun, formed=asked is not None))


def rendered_tokens(templates: TemplateProcesses, arm: ServedArm, body: ChatRequest) -> int:
    """Returns how many tokens a conversation has.

    Raises RequestError for one beyond both the context and what is tokenized at once.
    """
    text = conversation_text(templates, arm.format, body.messages, body, body.described())
    limit = None if len(text.encode()) <= limits.TOKENIZED.most else arm.client.ready.max_model_len
    return len(arm.tokenizer.encode(text, add_special_tokens=body.add_special_tokens, limit=limit))


def conversation_text(
    templates: TemplateProcesses,
    format: ModelFormat,
    messages: Sequence[Message],
    options: ChatOptions,
    tools: Sequence[dict[str, Any]] = (),
) -> str:
    """What the chat template makes of a conversation, and of tools. Raises RequestError."""
    template, told, variables = format.conversation(
        [message.model_dump(exclude_none=True) for message in messages], tools
    )
    return templates.render(
        template,
        told,
        add_generation_prompt=options.add_generation_prompt,
        continue_final_message=options.continue_final_message,
        **variables,
        **options.template_variables(),
    )
