"""What an engine sends for a request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.pooling import Pooled
from turnout.core.types.request import Timing, Traced

__all__ = ["Delta", "PromptScores"]


class Delta(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    """New tokens of one choice of one request."""

    request_id: str
    index: int = 0
    tokens: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    """``stop``, ``length``, ``abort`` or ``error``; None while the choice goes on."""
    stop_token: int | None = None
    """The stop token that ended it."""
    cached_tokens: int = 0
    """Prompt tokens whose KV was found in memory, and not computed."""
    begun: tuple[float, float] | None = None
    """On a request's first delta: seconds that it waited to be admitted, and then until its first token."""
    cumulative_logprob: float | None = None
    """Over all tokens of a choice that is sent whole, under the model's own distribution."""
    score: float | None = None
    """What a choice that is sent whole was ranked by."""
    error: str = ""
    error_kind: str = ""
    """With ``error``: ``invalid`` (the request is at fault), ``context`` (the model's does not hold it),
    ``overloaded``, ``timeout`` or ``internal``."""
    error_param: str | None = None
    retry_after: float = 1.0
    """With ``overloaded``: seconds after which the client should try again."""
    timing: Timing | None = None
    """On a request's last delta, if the request asked for it."""
    traced: Traced | None = None
    """Of a request that is traced, on its first delta and on its last."""
    pooled: Pooled | None = None
    """Of a request that pools, on its only delta."""
    prompt_logprobs: Sequence[TokenLogprobs] | None = None
    """On a request's first delta, if it asked for them: of the prompt from its second token on, or from where
    the `PromptScores` before it end."""


class PromptScores(msgspec.Struct, frozen=True, tag=True):
    """Part of a prompt's log-probabilities, which comes before the first delta: all in one message would take
    long to decode."""

    request_id: str
    scores: list[TokenLogprobs]
