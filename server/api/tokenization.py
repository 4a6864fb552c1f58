"""``POST /tokenize`` and ``POST /detokenize``, as vLLM has them."""

from __future__ import annotations

import asyncio

import msgspec
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.http.body import read_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.protocol.base import Listed, TokenId

__all__ = ["detokenize", "tokenize"]


class TokenizeRequest(BaseModel):
    model_config = ConfigDict(strict=True)

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True


class DetokenizeRequest(BaseModel):
    model_config = ConfigDict(strict=True)

    model: str | None = None
    tokens: Listed[TokenId]


class Tokens(msgspec.Struct):
    count: int
    max_model_len: int
    tokens: list[int]


async def tokenize(request: Request) -> Response:
    context = context_of(request)
    asked = await read_body(request, TokenizeRequest, limit=context.config.max_body_size)
    context.check_model(asked.model)
    tokens = await asyncio.to_thread(
        context.arms.first.tokenizer.encode, asked.prompt, add_special_tokens=asked.add_special_tokens
    )
    return JsonResponse(Tokens(len(tokens), context.arms.first.client.ready.max_model_len, tokens))


async def detokenize(request: Request) -> Response:
    context = context_of(request)
    asked = await read_body(request, DetokenizeRequest, limit=context.config.max_body_size)
    context.check_model(asked.model)
    text = await asyncio.to_thread(
        context.arms.first.tokenizer.decode, asked.tokens, skip_special_tokens=False
    )
    return JsonResponse({"prompt": text})
