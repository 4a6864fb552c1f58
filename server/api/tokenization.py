"""``POST /tokenize`` and ``POST /detokenize``, in vLLM's form."""

from __future__ import annotations

import asyncio

import msgspec
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.http.body import read_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.protocol.base import FailFastList, TokenId

__all__ = ["detokenize", "tokenize"]


class TokenizeRequest(BaseModel):
    """The body of a request to tokenize a text."""

    model_config = ConfigDict(strict=True)

    model: str | None = None
    """As for completions."""
    prompt: str
    """The text."""
    add_special_tokens: bool = True
    """Let the tokenizer add its own, such as a beginning of sequence."""


class DetokenizeRequest(BaseModel):
    """The body of a request to decode tokens."""

    model_config = ConfigDict(strict=True)

    model: str | None = None
    """As for completions."""
    tokens: FailFastList[TokenId]
    """The token ids; special ones are shown, too."""


class TokenizeResponse(msgspec.Struct):
    """The tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int]


async def tokenize(request: Request) -> Response:
    """Turns text into token ids."""
    context = context_of(request)
    body = await read_body(request, TokenizeRequest, limit=context.config.max_body_size)
    context.check_model(body.model)
    tokens = await asyncio.to_thread(
        context.arms.first.tokenizer.encode, body.prompt, add_special_tokens=body.add_special_tokens
    )
    return JsonResponse(TokenizeResponse(len(tokens), context.arms.first.client.ready.max_model_len, tokens))


async def detokenize(request: Request) -> Response:
    """Turns token ids into text."""
    context = context_of(request)
    body = await read_body(request, DetokenizeRequest, limit=context.config.max_body_size)
    context.check_model(body.model)
    text = await asyncio.to_thread(
        context.arms.first.tokenizer.decode, body.tokens, skip_special_tokens=False
    )
    return JsonResponse({"prompt": text})
