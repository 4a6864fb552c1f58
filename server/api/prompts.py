"""Turns the prompts of a request into requests to the engine, under the bounds on one and on all together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from turnout.core import limits
from turnout.core.errors import ContextExceeded, RequestError
from turnout.core.types.pooling import NO_TEXT
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.api.request_sizes import check_copies, check_logprobs, check_repetition
from turnout.server.api.text_pool import LONG, TextPool
from turnout.server.fleet.arms import ServedArm
from turnout.server.http.access.auth import Client
from turnout.server.http.request_memory import HeldMemory
from turnout.server.protocol.completions import CompletionRequest, Prompt
from turnout.server.protocol.field_names import client_names
from turnout.text.engine_params import engine_params
from turnout.text.prompt.fill_in import FillIn, needed_fill_in
from turnout.text.prompt.truncation import encoded, last_tokens
from turnout.text.tokenizer import Tokenizer

__all__ = [
    "TOKEN_BYTES",
    "PreparedPrompts",
    "check_generates",
    "ended_by",
    "fitting",
    "prepared_prompts",
    "tokenized",
]

TOKEN_BYTES = 16
"""What a token of a prompt takes, which is in several lists at times."""
FEW = 64
"""Prompts whose requests are made at once: handing them to a thread would take longer."""
FEW_BYTES = 16 * 2**10
"""Of a body, as it is in memory, whose parameters are made at once, for the same reason."""
PROMPT_WORK = 64
"""Characters whose tokenizing takes as long as what is done for a prompt besides."""
CHOICE_BYTES = 3 * 2**10
"""What a choice takes besides its text: its request, its answer, and that as it is rendered."""


class PreparedPrompts(NamedTuple):
    """The prompts of a request, ready for the engine."""

    requests: list[RequestSpec]
    """One for each prompt."""
    echoes: list[str]
    """For each choice what precedes its text."""


async def prepared_prompts(
    texts: TextPool,
    arm: ServedArm,
    body: CompletionRequest,
    id: str,
    client: Client,
    memory: HeldMemory,
    *,
    before: Sequence[int] = (),
) -> PreparedPrompts:
    """Raises RequestError, Overloaded. `before`: tokens in front of each prompt."""
    check_generates(arm)
    ready, tokenizer = arm.client.ready, arm.tokenizer
    limit = ready.max_model_len

    def parameters() -> SamplingParams:
        return engine_params(body.sampling_params(ready.defaults), tokenizer)

    few = memory.size <= FEW_BYTES and not body.bad_words
    params = parameters() if few else await texts.run(0, parameters)
    check_copies(params, len(body.prompt))
    memory.add(CHOICE_BYTES * len(body.prompt) * params.n)
    fill_in = needed_fill_in(tokenizer, "suffix", limit) if body.suffix else None
    if fill_in is not None:
        params = ended_by(fill_in, params, ready.vocab_size)
        with client_names({"prompt": "suffix"}):
            suffix = await texts.run(len(body.suffix or ""), partial(fill_in.suffix, body.suffix or ""))
        read: Reader = partial(_filled, fill_in, suffix, limit)
    else:
        read = _reader(body, arm)

    def whole(prompt: Prompt) -> list[int]:
        return arm.client.packed([*before, *read(prompt)])

    prompts = await tokenized(texts, body.prompt, whole, memory)

    def specs() -> list[RequestSpec]:
        requests = [
            body.request_spec(f"{id}-{number}", prompt, _fitted(body, params, limit - len(prompt)), *client)
            for number, prompt in enumerate(prompts)
        ]
        check_logprobs(requests, limit)
        return requests

    requests = await texts.run(PROMPT_WORK * len(prompts), specs) if len(prompts) > FEW else specs()
    if body.return_token_ids:
        check_repetition("return_token_ids", prompts, params.n)
    if not body.echo:
        return PreparedPrompts(requests, [""] * (len(prompts) * (body.n or 1)))
    echoes = await texts.run(
        sum(map(len, prompts)), lambda: [_echo(tokenizer, prompt) for prompt in body.prompt]
    )
    check_repetition("echo", echoes, params.n)
    return PreparedPrompts(requests, [echo for echo in echoes for _ in range(body.n or 1)])


def check_generates(arm: ServedArm) -> None:
    """Raises RequestError for a model that gives embeddings or scores alone."""
    if (pooling := arm.client.ready.pooling) is not None and not pooling.generates:
        raise RequestError(NO_TEXT, "model")


def ended_by(fill_in: FillIn, params: SamplingParams, vocab_size: int) -> SamplingParams:
    """`params` by which the tokens that end a missing part end the text."""
    ends = {*params.stop_token_ids, *(token for token in fill_in.ends if token < vocab_size)}
    return msgspec.structs.replace(params, stop_token_ids=tuple(sorted(ends)))


def fitting(params: SamplingParams, room: int) -> SamplingParams:
    """`params`, with `max_tokens` that fit no more meaning as many as fit."""
    if params.max_tokens is None or params.max_tokens <= room:
        return params
    return msgspec.structs.replace(params, max_tokens=None)


def _fitted(body: CompletionRequest, params: SamplingParams, room: int) -> SamplingParams:
    """`params`, with the API's default of 16 tokens lowered to `room` where fewer fit.

    Only a `max_tokens` that the client set is refused for being too large.
    """
    if body.as_fits:
        return fitting(params, room)
    default = params.max_tokens if body.max_tokens is None else None
    if default is None or not max(1, params.min_tokens) <= room < default:
        return params
    return msgspec.structs.replace(params, max_tokens=room)


def _echo(tokenizer: Tokenizer, prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)


# ------------------------------------------------------------------ tokens

Given = TypeVar("Given")
Reader = Callable[[Prompt], list[int]]
"""Turns a prompt into tokens. Raises RequestError."""


def _reader(body: CompletionRequest, arm: ServedArm) -> Reader:
    tokenizer, limit, special = arm.tokenizer, arm.client.ready.max_model_len, body.add_special_tokens
    last = last_tokens(body.truncate_prompt_tokens, limit, body.max_tokens)

    def read(prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return encoded(tokenizer, prompt, special=special, limit=limit, last=last)
        return _checked(prompt, limit) if last is None else prompt[-last:]

    return read


def _filled(fill_in: FillIn, suffix: Sequence[int], limit: int, prompt: Prompt) -> list[int]:
    return _checked(fill_in.prompt(prompt, suffix), limit)


def _length(prompt: Any) -> int:
    return len(prompt)


async def tokenized(
    texts: TextPool,
    prompts: Sequence[Given],
    read: Callable[[Given], list[int]],
    memory: HeldMemory,
    work: Callable[[Given], int] = _length,
) -> list[list[int]]:
    """The tokens of each prompt. Raises RequestError, Overloaded.

    work: characters whose tokenizing takes as long as that of a prompt.

    Many prompts take several turns in the pool, between which other clients have theirs.
    """
    found: list[list[int]] = []
    total = 0
    for group in _groups(prompts, work):
        size = PROMPT_WORK * len(group) + sum(map(work, group))
        tokens = await texts.tokenize(size, partial(_read_all, read, group))
        found += tokens
        added = sum(map(len, tokens))
        total += added
        memory.add(TOKEN_BYTES * added)
        if total > limits.PROMPT_TOKENS.most and len(prompts) > 1:
            raise RequestError(
                f"the prompts have more than {limits.PROMPT_TOKENS.whole:,} tokens together; send fewer in "
                "one request",
                "prompt",
            )
    return found


def _read_all(read: Callable[[Given], list[int]], prompts: Sequence[Given]) -> list[list[int]]:
    return [read(prompt) for prompt in prompts]


def _groups(prompts: Sequence[Given], work: Callable[[Given], int]) -> Iterator[list[Given]]:
    """The prompts in order, in groups that are short, or of one prompt."""
    group: list[Given] = []
    size = 0
    for prompt in prompts:
        more = PROMPT_WORK + work(prompt)
        if group and size + more >= LONG:
            yield group
            group, size = [], 0
        group.append(prompt)
        size += more
    yield group


def _checked(prompt: list[int], limit: int) -> list[int]:
    if len(prompt) > limit:
        raise ContextExceeded.of(limit, f"the prompt has {len(prompt)}; shorten the prompt")
    return prompt
