"""What a decoding strategy decides: how sequences continue, and which choices a request ends with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.types.logprobs import TokenLogprobs
    from turnout.core.types.request import Request, Sequence

__all__ = ["Choice", "Chosen", "Completion", "Continuation", "Retry", "resolve_tokens"]


class Continuation(NamedTuple):
    """A decision: continue `parent` with `tokens`."""

    parent: Sequence
    """A live sequence of the request."""
    tokens: list[int]
    """At least one. Tokens that the parent's draft has are computed already; the others will be."""
    logprob: float = 0.0
    """What the tokens add to the sequence's cumulative log-probability."""
    details: list[TokenLogprobs] | None = None
    """One for each of `tokens`, if the request wants them."""
    score: float = 0.0
    """What the strategy ranks the child by; kept as its `Sequence.score`."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """One more token for each of some sequences, chosen on the device and perhaps not known yet.

    Iterating waits for the tokens, and gives the continuations. An engine whose steps overlap starts the next
    step from `tokens`, on the device, before it reads them. So only the tokens may be unknown: a sequence is
    named in `parents` as often as it has children.
    """

    parents: list[Sequence]
    """Live sequences, each as often as it has children."""
    tokens: Tensor
    """int64 [parents], on the device."""
    read: Callable[[], list[int]]
    """Waits for `tokens`, and returns them."""
    details: Callable[[], list[TokenLogprobs | None]] | None = None
    """Waits, and returns the details of each token whose request wants them; None: no request does."""

    def __iter__(self) -> Iterator[Continuation]:
        for parent, (token, detail) in zip(self.parents, resolve_tokens(self), strict=True):
            yield Continuation(parent, [token], details=None if detail is None else [detail])


def resolve_tokens(chosen: Chosen) -> list[tuple[int, TokenLogprobs | None]]:
    """Waits for each token and its details. Raises ValueError unless there is one for each parent."""
    tokens = chosen.read()
    details = [None] * len(tokens) if chosen.details is None else chosen.details()
    if not len(tokens) == len(details) == len(chosen.parents):
        found = f"{len(tokens)} tokens and {len(details)} details"
        raise ValueError(f"chose for {len(chosen.parents)} sequences, and gave {found}")
    return list(zip(tokens, details, strict=True))


class Choice(NamedTuple):
    """A whole choice, from a strategy that keeps finished sequences itself."""

    tokens: list[int]
    """The output, a stop token included."""
    logprob: float
    """Cumulative, under the model's own distribution."""
    finish_reason: Literal["stop", "length"]
    """Why the choice ended."""
    stop_token: int | None = None
    """The stop token that ended it."""
    details: list[TokenLogprobs] | None = None
    """One for each of `tokens`, if the request wants them."""
    score: float | None = None
    """What the strategy ranked the choice by."""


class Completion(NamedTuple):
    """A decision: `request` ends now with these `n` choices, best first; live sequences are dropped."""

    request: Request
    choices: list[Choice]


class Retry(NamedTuple):
    """A decision: `request` stays as it is, and is asked about in the next step, with the same logits."""

    request: Request
    """One that was asked about. The last token of each of its sequences is computed again."""
