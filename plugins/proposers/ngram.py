"""Prompt lookup: drafts the tokens that followed the latest ones at their last occurrence in the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.proposer import DraftRequest, Proposal, Proposer
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["NGram"]

MAX_MATCH = 16
"""The largest value of the options `longest` and `shortest`."""


class NGram(Proposer):
    """Looks the latest tokens up in prompt and output, and drafts the tokens that followed them there.

    Needs no model and costs next to nothing; good where the output repeats the prompt or itself, as in
    editing code, summaries and extraction. Saxena, "Prompt Lookup Decoding", 2023.
    """

    def __init__(
        self,
        longest: Annotated[int, Field(ge=1, le=MAX_MATCH, description="Longest match, in tokens.")] = 4,
        shortest: Annotated[int, Field(ge=1, le=MAX_MATCH, description="Shortest match, in tokens.")] = 2,
    ) -> None:
        if shortest > longest:
            raise ConfigError(f"shortest={shortest} must not exceed longest={longest}")
        self._longest, self._shortest = longest, shortest
        self._texts: dict[TokenSequence, _Text] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        for sequence, count, _ in requests:
            text = self._texts.setdefault(sequence, _Text())
            text.read(sequence.tokens)
            end = text.last_match(self._longest, self._shortest)
            if end is not None:
                yield Proposal(sequence, text.continued(end, count))

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        for sequence in sequences:
            self._texts.pop(sequence, None)


class _Text:
    """A sequence's tokens in an array, which is quick to search."""

    def __init__(self) -> None:
        self._buffer: npt.NDArray[np.int32] = np.empty(256, dtype=np.int32)
        self._length = 0

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        return self._buffer[: self._length]

    def read(self, tokens: list[int]) -> None:
        """Appends the tokens that are new; those that were read before must not have changed."""
        if len(tokens) > len(self._buffer):
            self._buffer = np.concatenate([self.tokens, np.empty(2 * len(tokens), dtype=np.int32)])
        self._buffer[self._length : len(tokens)] = tokens[self._length :]
        self._length = len(tokens)

    def last_match(self, longest: int, shortest: int) -> int | None:
        """The position behind the last of the longest matches of the latest tokens; None without a match."""
        tokens, found = self.tokens, None
        ends = np.flatnonzero(tokens[:-1] == tokens[-1])  # last positions of matches of one token
        for length in range(1, min(longest, len(tokens) - 1) + 1):
            starts = ends - length + 1
            ends = ends[(starts >= 0) & (tokens[starts] == tokens[-length])]
            if not len(ends):
                break
            if length >= shortest:
                found = int(ends[-1]) + 1
        return found

    def continued(self, start: int, count: int) -> list[int]:
        """`count` tokens from `start` on, repeated from there where the text ends."""
        source: npt.NDArray[np.int32] = self.tokens[start:]
        return np.resize(source, count).tolist()
