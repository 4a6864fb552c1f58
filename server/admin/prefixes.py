"""``/admin/prefixes``: pinned prefixes."""

from __future__ import annotations

import re
import uuid
from contextlib import aclosing
from functools import partial
from typing import Annotated, Self

import msgspec
from msgspec.structs import asdict
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.engine.client import EngineClient
from turnout.core.errors import ContextExceeded, EngineError, RequestError, TurnoutError
from turnout.core.types.messages import ListPrefixes, PinnedPrefix, PinnedPrefixes, PinPrefix, UnpinPrefix
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.vocabulary import check_in_vocabulary
from turnout.server.api.context import Context, context_of
from turnout.server.api.text_pool import LONG
from turnout.server.fleet.arms import ServedArm
from turnout.server.http.access.auth import client_of
from turnout.server.http.admin_client import fetch, send
from turnout.server.http.bodies.body import read_body
from turnout.server.http.errors import ApiError
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import ARM, MODEL, fields, operation
from turnout.server.protocol.base import FailFastList
from turnout.server.protocol.chat import Message
from turnout.server.protocol.names import bounded_name
from turnout.server.protocol.token_ids import TokenIds, are_token_ids
from turnout.text.prompt.template_process import TemplateProcesses

__all__ = ["PrefixList", "PrefixRequest", "PrefixState", "list_prefixes", "pin_prefix", "unpin_prefix"]


PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def _checked_name(name: object) -> object:
    if isinstance(name, str) and not re.fullmatch(PATTERN, name):
        raise ValueError(
            "1 to 64 letters, digits, '.', '_' and '-' are expected, the first a letter or digit"
        )
    return name


class PrefixRequest(BaseModel):
    """The body of a request to pin a prefix."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: Annotated[str, Field(pattern=PATTERN), BeforeValidator(_checked_name)]
    """A prefix of the same name is replaced."""
    prompt: str | TokenIds | None = None
    """What requests begin with; tokenized like a prompt for completions."""
    messages: FailFastList[Message] | None = None
    """What conversations begin with, in place of `prompt`; the chat template renders them, without the
    assistant's turn."""
    add_special_tokens: bool = True
    """As for completions; for `prompt` as a string."""
    cache_salt: Annotated[str, Field(min_length=1)] | None = None
    """The salt of the requests that are to [find it](../explanation/kv.md#salts)."""
    compute: bool = True
    """Compute it now, if it is not in memory."""

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_prompt(cls, value: object) -> object:
        if isinstance(value, str | None) or (isinstance(value, list) and are_token_ids(value)):
            return value
        raise ValueError("a string or a list of token ids is expected")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.prompt) == bool(self.messages):
            raise RequestError("either prompt or messages must be given, and not be empty", "prompt")
        return self


class PrefixState(msgspec.Struct):
    """A `PinnedPrefix`, as clients see it."""

    name: str
    """The name that it was pinned by."""
    tokens: int
    """Its tokens in whole blocks: what is kept, and what requests find."""
    cached: int
    """Those of them that are in memory now."""


class PrefixList(msgspec.Struct):
    """The pinned prefixes."""

    prefixes: list[PrefixState]


@operation(answer=PrefixList, parameters=(MODEL, ARM))
async def list_prefixes(request: Request) -> Response:
    """Lists the pinned prefixes."""
    with context_of(request).named_arm(request) as arm:
        return JsonResponse(PrefixList([_state(prefix) for prefix in await _listed(arm.client)]))


@operation(answer=fields("Unpinned", name=str, deleted=bool), parameters=(MODEL, ARM))
async def unpin_prefix(request: Request) -> Response:
    """Unpins a prefix."""
    name = request.path_params["name"]
    with context_of(request).named_arm(request) as arm:
        await send(arm.client, UnpinPrefix(name))
    return JsonResponse({"name": name, "deleted": True})


@operation(body=PrefixRequest, answer=PrefixState, parameters=(MODEL, ARM))
async def pin_prefix(request: Request) -> Response:
    """Pins a prefix."""
    context = context_of(request)
    body = await read_body(request, PrefixRequest, limit=context.config.max_body_size)
    with context.named_arm(request) as arm:
        return JsonResponse(_state(await _pinned(context, arm, body, client_of(request).name)))


async def _pinned(context: Context, arm: ServedArm, body: PrefixRequest, client_id: str) -> PinnedPrefix:
    tokens = await context.texts.run(LONG, partial(_tokens, context.templates, arm, body))
    salt = bounded_name(body.cache_salt)
    command = PinPrefix(body.name, tokens, salt)
    pinned = await fetch(arm.client, command, PinnedPrefix)
    if body.compute:
        await _compute(arm.client, tokens, salt, client_id)
        pinned = next((p for p in await _listed(arm.client) if p.name == body.name), pinned)
    return pinned


def _tokens(templates: TemplateProcesses, arm: ServedArm, body: PrefixRequest) -> list[int]:
    """The prefix's tokens. Raises RequestError for a prefix that no request could begin with."""
    tokenizer, ready = arm.tokenizer, arm.client.ready
    if body.messages is not None:
        messages = [message.model_dump(exclude_none=True) for message in body.messages]
        text = templates.render(tokenizer.chat_template, messages, add_generation_prompt=False)
        tokens = tokenizer.encode(text, add_special_tokens=False, limit=ready.max_model_len)
    elif isinstance(body.prompt, str):
        tokens = tokenizer.encode(
            body.prompt, add_special_tokens=body.add_special_tokens, limit=ready.max_model_len
        )
    else:
        tokens = body.prompt or []
    _check(tokens, ready.max_model_len, ready.vocab_size)
    return tokens


def _check(tokens: list[int], longest: int, vocabulary: int) -> None:
    if len(tokens) >= longest:
        raise ContextExceeded.of(
            longest,
            f"the prefix has {len(tokens)} and at least one is needed for the output; shorten the prefix",
        )
    check_in_vocabulary(tokens, vocabulary, "prompt")


async def _compute(client: EngineClient, tokens: list[int], salt: str, client_id: str) -> None:
    """Compute the prefix by a request for one token, which queues and shares prefixes like any other."""
    request = RequestSpec(
        id=f"prefix-{uuid.uuid4().hex}",
        prompt=tokens,
        params=SamplingParams(max_tokens=1, temperature=0),
        seed=0,
        client=client_id,
        cache_salt=salt,
    )
    try:
        async with aclosing(client.submit(request)) as deltas:
            async for _ in deltas:
                pass
    except (RequestError, EngineError) as error:
        raise _only_pinned(error) from error


def _only_pinned(error: TurnoutError) -> ApiError:
    message = (
        f"the prefix is pinned, but not computed: {error}; the first request that has it will compute it"
    )
    return ApiError(503, message, code="prefix_not_computed")


async def _listed(client: EngineClient) -> list[PinnedPrefix]:
    return (await fetch(client, ListPrefixes(), PinnedPrefixes)).prefixes


def _state(pinned: PinnedPrefix) -> PrefixState:
    return PrefixState(**asdict(pinned))
