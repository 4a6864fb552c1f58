"""Reads a checkpoint's ``generation_config.json``: how to sample, and which tokens end the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnout.core.errors import ModelError, RequestError
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.config_reader import ConfigReader

__all__ = ["end_tokens", "sampling_defaults"]

NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Sampling parameters that it may set for requests that do not."""
FILE = "generation_config.json"
ADVICE = "correct the file in the model's folder, or remove it"


def sampling_defaults(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Returns sampling parameters by name; a greedy checkpoint stays greedy.

    Raises ModelError for values that no request could have.
    """
    if generation.get("do_sample") is False:
        return {"temperature": 0.0}
    stated = {name: generation[name] for name in NAMES if generation.get(name) is not None}
    try:
        params = msgspec.convert(stated, SamplingParams)
    except (msgspec.ValidationError, UnicodeEncodeError, RequestError) as error:
        raise ModelError(f"{FILE}: {error}; {ADVICE}") from error
    return {name: getattr(params, name) for name in stated}


def end_tokens(generation: Mapping[str, Any]) -> frozenset[int]:
    """Returns the tokens that end the text. Raises ModelError unless it is a token id or a list of them."""
    try:
        return frozenset(ConfigReader(generation, FILE).token_ids("eos_token_id"))
    except ModelError as error:
        raise ModelError(f"{error}; {ADVICE}") from None
