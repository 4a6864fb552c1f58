"""Prompts that are cut to their last tokens, as a request of vLLM's ``truncate_prompt_tokens`` wants."""

from __future__ import annotations

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.text.tokenizer import Tokenizer

__all__ = ["FIELD", "encoded", "last_tokens"]

FIELD = "truncate_prompt_tokens"


def last_tokens(count: int | None, context: int, output: int | None) -> int | None:
    """How many of a prompt's last tokens are kept; None: all, and a prompt too long is refused.

    count: as the client asks; -1: as many as leave room in the context for `output` tokens, or for one.
    """
    if count is None:
        return None
    if count > context:
        raise RequestError(
            f"{FIELD} is {count:,}, but the context length is {context:,} tokens; -1 keeps as many as fit",
            FIELD,
        )
    return count if count > 0 else max(1, context - (output or 1))


def encoded(
    tokenizer: Tokenizer, text: str, *, special: bool, limit: int | None, last: int | None
) -> list[int]:
    """The tokens of a text, or the `last` of them. Raises RequestError for a text that is too long.

    special: whether the tokenizer adds special tokens.
    limit: most tokens of a text that is not cut.
    """
    if last is None:
        return tokenizer.encode(text, add_special_tokens=special, limit=limit)
    if len(text) > limits.TOKENIZED.most:
        raise RequestError(
            f"the prompt has {len(text):,} characters; with {FIELD}, at most {limits.TOKENIZED.whole:,} are "
            "tokenized",
            "prompt",
        )
    return tokenizer.encode(text, add_special_tokens=special)[-last:]
