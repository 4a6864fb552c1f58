"""Whether a model has the tokens that a request names."""

from __future__ import annotations

from collections.abc import Collection

from turnout.core.errors import RequestError

__all__ = ["check_in_vocabulary"]


def check_in_vocabulary(tokens: Collection[int], size: int, param: str) -> None:
    """Raises RequestError, which names `param`, for a token id that a vocabulary of `size` tokens lacks."""
    if tokens and (min(tokens) < 0 or max(tokens) >= size):
        bad = next(token for token in tokens if not 0 <= token < size)
        raise RequestError(f"token id {bad} is outside the vocabulary of {size} tokens", param)
