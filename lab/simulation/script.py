"""Decoding for simulations: outputs of the length that was asked for, of tokens that no model computed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache

from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["Script"]

PERIOD = 1 << 16


class Script(Decoding):
    """Serves every request of one choice. A token is a function of the request's seed and the position."""

    def __init__(self, vocab_size: int) -> None:
        self._cycle = _cycle(vocab_size)

    def tokens(self, seed: int, position: int, count: int) -> list[int]:
        """`count` of them, at most `PERIOD`, from a position on."""
        # A slice: a simulation makes hundreds of millions of these.
        start = (seed * 40_503 + position) % PERIOD
        found = self._cycle[start : start + count]
        return found + self._cycle[: count - len(found)] if len(found) < count else found

    def next(self, sequence: TokenSequence, count: int) -> list[int]:
        return self.tokens(sequence.request.spec.seed, len(sequence.tokens), count)

    def accepts(self, params: SamplingParams) -> bool:
        return params.n == 1

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterator[Continuation]:
        for request in requests:
            (sequence,) = request.live
            yield Continuation(sequence, self.next(sequence, 1))


@cache
def _cycle(vocab_size: int) -> list[int]:
    """The tokens of all replicas; never changed."""
    rng = random.Random("script")
    return [rng.randrange(vocab_size) for _ in range(PERIOD)]
