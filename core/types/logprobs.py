"""Log-probabilities of one token, as decisions, sequences and messages carry them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

__all__ = ["TokenLogprobs"]


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Natural log-probabilities at one position, under the model's own distribution (temperature 1)."""

    token: int
    logprob: float
    top: list[tuple[int, float]]
    """The most likely tokens and their log-probabilities, best first."""

    def ranked(self) -> Iterator[tuple[int, float, int | None]]:
        """Yields the chosen token, then the rest of `top`, with ranks from 1 on; None: not in `top`."""
        ranks = {token: rank for rank, (token, _) in enumerate(self.top, 1)}
        yield self.token, self.logprob, ranks.get(self.token)
        for token, logprob in self.top:
            if token != self.token:
                yield token, logprob, ranks[token]
