"""Checks the lists of sampling parameters: what they hold, and how much.

A list may have a hundred thousand entries, and the engine checks it too. So a check goes over them in C, and
looks for the entry at fault only when there is one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import TYPE_CHECKING

from turnout.core import limits
from turnout.core.errors import RequestError

if TYPE_CHECKING:
    from turnout.core.types.sampling_params import SamplingParams

__all__ = ["check_param_lists"]


def check_param_lists(params: SamplingParams) -> None:
    """Raises RequestError for a list that is too long, or that holds what it must not hold."""
    _check_sizes(params)
    for name, strings in (("stop", params.stop), ("bad_words", params.bad_words)):
        if strings and not (_all_are(strings, str, str) and all(strings)):
            raise RequestError(f"{name} must hold strings, none of them empty", name)
    _check_lengths(params)
    for name, tokens in params.token_ids():
        if tokens and not _all_are(tokens, int, Integral):
            raise RequestError(f"{name} must hold token ids, which are integers", name)
    if params.allowed_token_ids == ():
        raise RequestError("allowed_token_ids must hold at least one token id", "allowed_token_ids")
    if () in params.bad_words_token_ids:
        raise RequestError("bad_words_token_ids must hold no empty sequence", "bad_words_token_ids")
    biases = params.logit_bias.values()
    if biases and not (_all_are(biases, float, Real) and all(map(math.isfinite, biases))):
        token, bias = next(item for item in params.logit_bias.items() if not _is_finite(item[1]))
        raise RequestError(
            f"logit_bias must map token ids to finite numbers, not {token} to {bias!r:.40}", "logit_bias"
        )


def _check_sizes(params: SamplingParams) -> None:
    for name, size, limit in (
        ("stop", len(params.stop), limits.STOP_STRINGS),
        ("bad_words", len(params.bad_words), limits.BAD_WORDS),
        ("stop_token_ids", len(params.stop_token_ids), limits.STOP_TOKENS),
        ("logit_bias", len(params.logit_bias), limits.BIASES),
        ("allowed_token_ids", len(params.allowed_token_ids or ()), limits.LISTED_TOKENS),
    ):
        if size > limit.most:
            raise RequestError(f"{name} has {size:,} {limit.unit}; at most {limit.whole:,} are allowed", name)


def _check_lengths(params: SamplingParams) -> None:
    longest = max(map(len, params.stop), default=0)
    if longest > limits.STOP_LENGTH.most:
        raise RequestError(
            f"a stop string has {longest:,} characters; at most {limits.STOP_LENGTH.whole:,} are allowed",
            "stop",
        )
    together = sum(map(len, params.bad_words))
    if together > limits.BAD_WORDS_TEXT.most:
        raise RequestError(
            f"bad_words have {together:,} characters together; at most {limits.BAD_WORDS_TEXT.whole:,} are "
            "allowed",
            "bad_words",
        )


def _all_are(values: Collection[object], usual: type, kind: type) -> bool:
    """Whether all values are of a kind; `usual` is the type that they nearly always have."""
    return {usual}.issuperset(map(type, values)) or all(isinstance(value, kind) for value in values)


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)
