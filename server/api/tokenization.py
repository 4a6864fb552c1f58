"""``POST /tokenize``, ``POST /detokenize`` and ``GET /tokenizer_info``, in vLLM's form."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.core.vocabulary import check_in_vocabulary
from turnout.server.api.context import context_of
from turnout.server.api.conversation import conversation_text, text_work
from turnout.server.api.prompts import TOKEN_BYTES
from turnout.server.api.respond import LARGE
from turnout.server.fleet.arms import ServedArm
from turnout.server.http.bodies.body import read_body
from turnout.server.http.disconnect import while_connected
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.json_slices import Lazily, encoded_pieces
from turnout.server.http.openapi.operation import MODEL, fields, operation
from turnout.server.http.pieces import PieceResponse
from turnout.server.http.request_memory import held_memory
from turnout.server.protocol.tokenization import DetokenizeRequest, TokenizeRequest, TokenizeResponse
from turnout.text.prompt.template_process import TemplateProcesses
from turnout.text.prompt.truncation import last_tokens

__all__ = ["detokenize", "show_tokenizer", "tokenize"]


@operation(body=TokenizeRequest, answer=TokenizeResponse, generates=True)
async def tokenize(request: Request) -> Response:
    """Turns text, or a conversation, into token ids."""
    context = context_of(request)
    body = await read_body(request, TokenizeRequest, limit=context.config.max_body_size)
    context = context.of(body.model)
    size = max(len(body.prompt or ""), text_work(request, body.messages or ()))
    arm = await context.described(request)
    work = partial(_response, context.templates, arm, body)
    response = await while_connected(request.receive, context.texts.run(size, work))
    memory = held_memory(request)
    memory.add(TOKEN_BYTES * response.count)
    pieces = encoded_pieces(response)
    if response.count < LARGE:
        return Response(b"".join(pieces), media_type=JsonResponse.media_type)
    return PieceResponse(context.rendering.made(pieces), JsonResponse.media_type, memory)


def _response(templates: TemplateProcesses, arm: ServedArm, body: TokenizeRequest) -> TokenizeResponse:
    tokens = _tokens(templates, arm, body)
    response = TokenizeResponse(len(tokens), arm.client.ready.max_model_len, tokens)
    if body.return_token_strs:
        response.token_strs = Lazily(tokens, arm.tokenizer.spelling)
    return response


def _tokens(templates: TemplateProcesses, arm: ServedArm, body: TokenizeRequest) -> list[int]:
    if body.messages:
        text = conversation_text(templates, arm.format, body.messages, body, body.described())
    else:
        text = body.prompt or ""
    if (size := len(text.encode())) > limits.TOKENIZED.most:
        raise RequestError(
            f"the text has {size:,} bytes; at most {limits.TOKENIZED.whole:,} are tokenized at once", "prompt"
        )
    special = body.add_special_tokens
    tokens = arm.tokenizer.encode(text, add_special_tokens=not body.messages if special is None else special)
    last = last_tokens(body.truncate_prompt_tokens, arm.client.ready.max_model_len, None)
    return tokens if last is None else tokens[-last:]


@operation(body=DetokenizeRequest, answer=fields("Text", prompt=str), generates=True)
async def detokenize(request: Request) -> Response:
    """Turns token ids into text."""
    context = context_of(request)
    body = await read_body(request, DetokenizeRequest, limit=context.config.max_body_size)
    context = context.of(body.model)
    size = len(body.tokens)
    if size > limits.DETOKENIZED.most:
        raise RequestError(
            f"there are {size:,} tokens; at most {limits.DETOKENIZED.whole:,} are decoded at once", "tokens"
        )
    arm = await context.described(request)
    text = await while_connected(request.receive, context.texts.run(size, partial(_text, arm, body.tokens)))
    return JsonResponse({"prompt": text})


def _text(arm: ServedArm, tokens: list[int]) -> str:
    check_in_vocabulary(tokens, arm.client.ready.vocab_size, "tokens")
    return arm.tokenizer.decode(tokens, skip_special_tokens=False)


@operation(parameters=(MODEL,))
async def show_tokenizer(request: Request) -> Response:
    """Shows the tokenizer's configuration and the chat template."""
    context = context_of(request).of(request.query_params.get("model"))
    return JsonResponse(context.arms.first.tokenizer.description)
