"""Turns the texts of a request into requests to the engine that generate nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import msgspec

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.core.types.pooling import PoolingFacts, PoolingParams
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.api.context import Context
from turnout.server.api.prompts import tokenized
from turnout.server.fleet.arms import ServedArm
from turnout.server.http.access.auth import Client
from turnout.server.http.request_memory import HeldMemory
from turnout.server.protocol.names import bounded_name
from turnout.server.protocol.pooling.requests import PooledRequest
from turnout.text.prompt.pooling_tokens import (
    TEXTS,
    Cut,
    TextTokens,
    advising,
    kept_tokens,
    named_text,
    pair_tokens,
    shortened,
    text_tokens,
)

__all__ = ["Pair", "Texts", "facts_of", "named", "numbered", "prepared_texts"]

ANSWER_BYTES = 3 * 2**10
"""What a text takes besides its tokens and its vector."""


class Pair(NamedTuple):
    """Two texts that are computed together."""

    first: str
    second: str


Text = str | list[int] | Pair


class Texts(NamedTuple):
    """The texts of a request, and how they become tokens."""

    texts: Sequence[Text]
    params: PoolingParams
    before: str = ""
    """What is put in front of each; of pairs, the instruction."""
    special: bool = True
    """The tokenizer adds its own tokens."""
    most_of_second: int | None = None
    """Tokens that are kept of a pair's second text; the pair is then cut to what the model takes."""
    numbers: Sequence[int] | None = None
    """Where the request has each text; None: in this order."""

    def number(self, at: int) -> int:
        return at if self.numbers is None else self.numbers[at]


def facts_of(arm: ServedArm) -> PoolingFacts:
    """What the arm's engine says of its pooling. Raises RequestError where it has none."""
    facts = arm.client.ready.pooling
    if facts is None:
        raise RequestError("this model gives neither embeddings nor scores", "model")
    return facts


@contextmanager
def named(field: str) -> Iterator[None]:
    """Makes errors raised in the block name the texts as the client does."""
    try:
        yield
    except RequestError as error:
        if error.param in TEXTS:
            error.param = field
        raise


@contextmanager
def numbered(of: Texts, at: int) -> Iterator[None]:
    """Makes errors about a text, raised in the block, name the one at `at`, where there are several."""
    if len(of.texts) == 1:
        yield
        return
    with named_text(f"{'pair' if isinstance(of.texts[at], Pair) else 'text'} {of.number(at)}"):
        yield


async def prepared_texts(
    context: Context,
    arm: ServedArm,
    body: PooledRequest,
    of: Texts,
    id: str,
    client: Client,
    memory: HeldMemory,
    most: int | None = None,
) -> list[RequestSpec]:
    """Returns a request for each text. Raises RequestError, Overloaded.

    most: tokens that are kept of each text; None: as the body says.
    """
    memory.add(ANSWER_BYTES * len(of.texts))
    limit = _limit(arm)
    keep = kept_tokens(body.truncate_prompt_tokens, limit) if most is None else min(most, limit)
    if keep is None and of.most_of_second is not None:
        keep = limit
    side = body.truncation_side or arm.tokenizer.truncation_side
    cut = None if keep is None else Cut(keep, side, of.most_of_second)
    read = partial(_read_numbered, arm, body.CUT_BY, of, limit, cut)
    prompts = await tokenized(context.texts, list(enumerate(of.texts)), read, memory, _work)
    return [_spec(body, f"{id}-{number}", prompt, of.params, client) for number, prompt in enumerate(prompts)]


def _limit(arm: ServedArm) -> int:
    longest, facts = arm.client.ready.max_model_len, facts_of(arm)
    return longest if facts.max_length is None else min(longest, facts.max_length)


class _Tokens(list[int]):
    """Token ids, of which `second_text` is as `PoolingParams` has it."""

    second_text = 0


def _read_numbered(
    arm: ServedArm, cut_by: str, of: Texts, limit: int, cut: Cut | None, text: tuple[int, Text]
) -> list[int]:
    with numbered(of, text[0]), advising(cut_by):
        return _read(arm, of, limit, cut, text[1])


def _read(arm: ServedArm, of: Texts, limit: int, cut: Cut | None, text: Text) -> list[int]:
    if isinstance(text, list):
        return text if cut is None else shortened(text, cut.keep, cut.side)
    read = _read_pair if isinstance(text, Pair) else _read_text
    tokens = read(of, arm, text, limit, cut)  # type: ignore[arg-type]  # mypy joins the two functions
    if not tokens.ids:
        raise RequestError("a text has no tokens; at least one is needed", "input")
    found = _Tokens(tokens.ids)
    found.second_text = tokens.second_text
    return found


def _read_text(of: Texts, arm: ServedArm, text: str, limit: int, cut: Cut | None) -> TextTokens:
    told = _told(arm, of.before + text)
    return text_tokens(arm.tokenizer, told, special=of.special, limit=limit, cut=cut)


def _read_pair(of: Texts, arm: ServedArm, pair: Pair, limit: int, cut: Cut | None) -> TextTokens:
    first, second = (_told(arm, text) for text in pair)
    return pair_tokens(
        arm.tokenizer,
        first,
        second,
        limit=limit,
        cut=cut,
        template=facts_of(arm).pair,
        instruction=of.before,
    )


def _told(arm: ServedArm, text: str) -> str:
    """Returns a text as the model reads it. Raises RequestError for one that takes too long to read."""
    if len(text) > limits.TOKENIZED.most:
        raise RequestError(
            f"a text has {len(text):,} characters; at most {limits.TOKENIZED.whole:,} are tokenized", "input"
        )
    return text.lower() if facts_of(arm).lower_case else text


def _spec(
    body: PooledRequest, id: str, prompt: list[int], params: PoolingParams, client: Client
) -> RequestSpec:
    name, origin, session = client
    second = getattr(prompt, "second_text", 0)
    return RequestSpec(
        id=id,
        prompt=prompt,
        params=SamplingParams(max_tokens=1),
        seed=0,
        priority=body.priority,
        client=bounded_name(name),
        user="" if name == body.user else bounded_name(body.user),
        origin=origin,
        session=bounded_name(session),
        cache_salt=bounded_name(body.cache_salt),
        pooling=msgspec.structs.replace(params, second_text=second) if second else params,
    )


def _work(numbered: tuple[int, Text]) -> int:
    _, text = numbered
    return sum(map(len, text)) if isinstance(text, Pair) else len(text)
