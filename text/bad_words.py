"""Finds the token sequences of words that must not be generated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from turnout.core.types.sampling_params import SamplingParams
from turnout.text.tokenizer import Tokenizer

__all__ = ["with_bad_words"]


def with_bad_words(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """`params` with the token sequences of its bad words: the engine knows tokens alone."""
    if not params.bad_words:
        return params
    words = dict.fromkeys((*params.bad_words_token_ids, *_sequences(params.bad_words, tokenizer)))
    return msgspec.structs.replace(params, bad_words_token_ids=tuple(words))


def _sequences(words: Iterable[str], tokenizer: Tokenizer) -> Iterator[tuple[int, ...]]:
    """Each word's tokens at the beginning of a text and, after a space, within one, as in vLLM."""
    for word in words:
        bare = word.lstrip()
        for text in (bare, f" {bare}") if bare else (word,):
            tokens = tokenizer.encode(text, add_special_tokens=False)
            if tokens:
                yield tuple(tokens)
