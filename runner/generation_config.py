"""What a checkpoint's ``generation_config.json`` says: how to sample, and which tokens end the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnout.core.errors import ModelError, RequestError
from turnout.core.sampling_params import SamplingParams

__all__ = ["end_tokens", "sampling_defaults"]

NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What it may say for requests that do not."""
ADVICE = "correct the file in the model's folder, or remove it"


def sampling_defaults(generation: Mapping[str, Any]) -> dict[str, Any]:
    """By name; a greedy checkpoint stays greedy.

    Raises ModelError for values that no request could be served with.
    """
    if generation.get("do_sample") is False:
        return {"temperature": 0.0}
    stated = {name: generation[name] for name in NAMES if generation.get(name) is not None}
    try:
        params = msgspec.convert(stated, SamplingParams)
    except (msgspec.ValidationError, RequestError) as error:
        raise ModelError(f"generation_config.json: {error}; {ADVICE}") from error
    return {name: getattr(params, name) for name in stated}


def end_tokens(generation: Mapping[str, Any]) -> frozenset[int]:
    """Raises ModelError for what is no token id, nor a list of them."""
    stated = generation.get("eos_token_id")
    ids = stated if isinstance(stated, list) else [] if stated is None else [stated]
    if not all(type(id) is int for id in ids):
        raise ModelError(
            f"generation_config.json: eos_token_id = {stated!r} should be an integer or a list of integers; "
            f"{ADVICE}"
        )
    return frozenset(ids)
