"""Sampling parameters as the engine needs them: it knows neither words nor how many choices are returned."""

from __future__ import annotations

from turnout.core.types.sampling_params import SamplingParams
from turnout.text.bad_words import with_bad_words
from turnout.text.tokenizer import Tokenizer

__all__ = ["engine_params"]


def engine_params(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """`params` with the tokens of their bad words, and with all of `best_of` to generate."""
    return with_bad_words(params, tokenizer).generating()
