"""Prompt lookup: what followed the latest tokens when they last stood in the text may follow again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.proposer import Proposal, Proposer, Wish
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["NGram"]

MOST = 16
"""Tokens of a match that may be asked for."""


class NGram(Proposer):
    """Looks the latest tokens up in prompt and output, and guesses what followed them there.

    Needs no model and costs next to nothing; good where the output repeats the prompt or itself, as in
    editing code, summaries and extraction. Saxena, "Prompt Lookup Decoding", 2023.
    """

    def __init__(
        self,
        longest: Annotated[int, Field(ge=1, le=MOST, description="Tokens that match at best.")] = 4,
        shortest: Annotated[int, Field(ge=1, le=MOST, description="Tokens that match at least.")] = 2,
    ) -> None:
        if shortest > longest:
            raise ConfigError(f"shortest={shortest} must not exceed longest={longest}")
        self._longest, self._shortest = longest, shortest
        self._texts: dict[TokenSequence, _Text] = {}

    def propose(self, wishes: Sequence[Wish]) -> Iterable[Proposal]:
        for sequence, count, _ in wishes:
            text = self._texts.setdefault(sequence, _Text())
            text.read(sequence.tokens)
            place = text.last_match(self._longest, self._shortest)
            if place is not None:
                yield Proposal(sequence, text.copied(place, count))

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        for sequence in sequences:
            self._texts.pop(sequence, None)


class _Text:
    """A sequence's tokens where they can be searched at once."""

    def __init__(self) -> None:
        self._room: npt.NDArray[np.int32] = np.empty(256, dtype=np.int32)
        self._length = 0

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        return self._room[: self._length]

    def read(self, tokens: list[int]) -> None:
        """The sequence as it is now: what was read of it stays."""
        if len(tokens) > len(self._room):
            self._room = np.concatenate([self.tokens, np.empty(2 * len(tokens), dtype=np.int32)])
        self._room[self._length : len(tokens)] = tokens[self._length :]
        self._length = len(tokens)

    def last_match(self, longest: int, shortest: int) -> int | None:
        """The position behind the last place where most of the latest tokens stand, up to `longest`."""
        tokens, found = self.tokens, None
        ends = np.flatnonzero(tokens[:-1] == tokens[-1])  # where a match of the last token alone ends
        for length in range(1, min(longest, len(tokens) - 1) + 1):
            starts = ends - length + 1
            ends = ends[(starts >= 0) & (tokens[starts] == tokens[-length])]
            if not len(ends):
                break
            if length >= shortest:
                found = int(ends[-1]) + 1
        return found

    def copied(self, place: int, count: int) -> list[int]:
        """`count` tokens from `place` on; one that reaches the end goes on with its own copy."""
        source: npt.NDArray[np.int32] = self.tokens[place:]
        return np.resize(source, count).tolist()
