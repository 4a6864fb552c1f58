"""Turns the prompts of a request into tokens, under the bounds on one prompt and on all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.server.api.text_pool import LONG, TextPool
from turnout.server.protocol.completions import Prompt
from turnout.text.tokenizer import Tokenizer

__all__ = ["tokenized"]


async def tokenized(
    texts: TextPool, tokenizer: Tokenizer, prompts: Sequence[Prompt], *, special: bool, limit: int
) -> list[list[int]]:
    """The tokens of each prompt. Raises RequestError for a prompt of more than `limit` tokens.

    Many prompts take several turns in the pool, between which other clients have theirs.

    special: whether the tokenizer adds special tokens.
    """
    found: list[list[int]] = []
    total = 0
    for group in _groups(prompts):
        size = sum(map(len, group))
        tokens = await texts.run(size, partial(_tokens, tokenizer, group, special, limit))
        found += tokens
        total += sum(map(len, tokens))
        if total > limits.PROMPT_TOKENS.most and len(prompts) > 1:
            raise RequestError(
                f"the prompts have more than {limits.PROMPT_TOKENS.whole:,} tokens together; send fewer in "
                "one request",
                "prompt",
            )
    return found


def _groups(prompts: Sequence[Prompt]) -> Iterator[list[Prompt]]:
    """The prompts in order, in groups that are short, or of one prompt."""
    group: list[Prompt] = []
    size = 0
    for prompt in prompts:
        if group and size + len(prompt) >= LONG:
            yield group
            group, size = [], 0
        group.append(prompt)
        size += len(prompt)
    yield group


def _tokens(tokenizer: Tokenizer, prompts: Sequence[Prompt], special: bool, limit: int) -> list[list[int]]:
    return [
        tokenizer.encode(prompt, add_special_tokens=special, limit=limit)
        if isinstance(prompt, str)
        else _checked(prompt, limit)
        for prompt in prompts
    ]


def _checked(prompt: list[int], limit: int) -> list[int]:
    if len(prompt) > limit:
        raise RequestError(
            f"the prompt has {len(prompt):,} tokens, but the context length is {limit:,} tokens; shorten the "
            "prompt",
            "prompt",
        )
    return prompt
