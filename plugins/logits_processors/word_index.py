"""Finds the tokens that would complete a word, in a time that hardly depends on the number of words."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter

import numpy as np

from turnout.plugins.logits_processors.token_index import TokenIds

__all__ = ["WordIndex"]


class WordIndex:
    """Words as token sequences, sorted by the tokens before the last one, read backwards.

    The words that begin with the latest tokens of a text are then neighbours: with each token further back
    a bisection narrows their range, until no word has that many tokens.
    """

    def __init__(self, words: Collection[tuple[int, ...]]) -> None:
        self._single = np.array([word[0] for word in words if len(word) == 1], dtype=np.int64)
        several = sorted((word[-2::-1], word[-1]) for word in words if len(word) > 1)
        self._before = [before for before, _ in several]
        self._last = [last for _, last in several]
        self._longest = max(map(len, self._before), default=0)

    def completing(self, latest: Callable[[int], Sequence[int]]) -> TokenIds:
        """The last tokens of the words whose other tokens end the text: int64 [tokens].

        latest: returns as many of the text's last tokens as asked for, or all that there are.
        """
        found = self._search(latest(self._longest)) if self._longest else []
        return np.concatenate((self._single, np.array(found, dtype=np.int64))) if found else self._single

    def _search(self, text: Sequence[int]) -> list[int]:
        found: list[int] = []
        low, high = 0, len(self._before)
        for depth, token in enumerate(reversed(text)):
            key = itemgetter(depth)
            low = bisect_left(self._before, token, low, high, key=key)
            high = bisect_right(self._before, token, low, high, key=key)
            # Words that have no more tokens sort first.
            longer = bisect_right(self._before, depth + 1, low, high, key=len)
            found += self._last[low:longer]
            low = longer
            if low == high:
                break
        return found
