"""The tokens of a vocabulary by how they begin."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

__all__ = ["TokenStarts"]


class TokenStarts:
    """Finds the tokens that begin with some bytes."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """texts: the bytes of each token, by its id."""
        self._ids = sorted(range(len(texts)), key=texts.__getitem__)
        self._texts = [texts[id] for id in self._ids]

    def beginning_with(self, start: bytes) -> Iterator[int]:
        """The ids of the tokens whose bytes begin with these."""
        at = bisect_left(self._texts, start)
        while at < len(self._texts) and self._texts[at].startswith(start):
            yield self._ids[at]
            at += 1
