"""``POST /tokenize``, ``POST /detokenize`` and ``GET /tokenizer_info``, in vLLM's form."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.chat import conversation_text
from turnout.server.api.context import context_of
from turnout.server.http.body import read_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.protocol.tokenization import DetokenizeRequest, TokenizeRequest, TokenizeResponse
from turnout.text.tokenizer import Tokenizer

__all__ = ["detokenize", "show_tokenizer", "tokenize"]


async def tokenize(request: Request) -> Response:
    """Turns text, or a conversation, into token ids."""
    context = context_of(request)
    body = await read_body(request, TokenizeRequest, limit=context.config.max_body_size)
    context.check_model(body.model)
    tokenizer = context.arms.first.tokenizer
    tokens = await asyncio.to_thread(_tokens, tokenizer, body)
    response = TokenizeResponse(len(tokens), context.arms.first.client.ready.max_model_len, tokens)
    if body.return_token_strs:
        response.token_strs = [tokenizer.spelling(token) for token in tokens]
    return JsonResponse(response)


def _tokens(tokenizer: Tokenizer, body: TokenizeRequest) -> list[int]:
    text = conversation_text(tokenizer, body.messages, body) if body.messages else body.prompt or ""
    special = body.add_special_tokens
    return tokenizer.encode(text, add_special_tokens=not body.messages if special is None else special)


async def detokenize(request: Request) -> Response:
    """Turns token ids into text."""
    context = context_of(request)
    body = await read_body(request, DetokenizeRequest, limit=context.config.max_body_size)
    context.check_model(body.model)
    text = await asyncio.to_thread(
        context.arms.first.tokenizer.decode, body.tokens, skip_special_tokens=False
    )
    return JsonResponse({"prompt": text})


async def show_tokenizer(request: Request) -> Response:
    """Shows the tokenizer's configuration and the chat template."""
    return JsonResponse(context_of(request).arms.first.tokenizer.description)
