"""What has come of a choice that is answered in one piece, in little memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

import msgspec

from turnout.core.types.logprobs import PackedLogprobs
from turnout.text.choice_text import ShownToken, TextDelta
from turnout.text.output.events import Event, merged

__all__ = ["GatheredChoice"]

PIECES = 64
"""Pieces of text that are kept apart: an object each takes ten times the memory of its text."""
TOKEN_BYTES = 48
"""A token, kept for another engine, and the time when it came."""
CHARACTER_BYTES = 4
"""A character of text, which is kept twice where the parts of an output are told apart."""


class GatheredChoice:
    """Joins text deltas. Log-probabilities are packed; tokens are kept only where the client wants them."""

    def __init__(self, *, token_ids: bool) -> None:
        self._token_ids = token_ids
        self._text = _Pieces()
        self._tokens: list[int] = []
        self._shown, self._answered = _PackedShown(), _PackedShown()
        self._events: list[Event] = []
        self._merged = 0
        """Events that are merged."""
        self._last = TextDelta(0)
        self.size = 0
        """Bytes that it takes, about."""

    def add(self, delta: TextDelta) -> None:
        """Raises OverflowError for tokens that are no token ids."""
        self._last = delta
        self._text.add(delta.text)
        self.size += CHARACTER_BYTES * len(delta.text) + TOKEN_BYTES * len(delta.tokens)
        if self._token_ids:
            self._tokens += delta.tokens
        for kept, added in ((self._shown, delta.shown), (self._answered, delta.answered)):
            if added:
                before = kept.nbytes
                kept.extend(added)
                self.size += kept.nbytes - before
        if delta.events:
            self._events += delta.events
            if len(self._events) >= self._merged + PIECES:
                self._events = merged(self._events)
                self._merged = len(self._events)

    def whole(self) -> TextDelta:
        """All deltas as one."""
        return msgspec.structs.replace(
            self._last,
            text=self._text.joined(),
            shown=self._shown,
            answered=self._answered,
            tokens=self._tokens,
            events=merged(self._events),
        )


class _Pieces:
    """A text that grows by small pieces."""

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        if len(self._pieces) >= PIECES:
            self._joined.append("".join(self._pieces))
            self._pieces = []

    def joined(self) -> str:
        return "".join([*self._joined, *self._pieces])


class _PackedShown(Sequence[ShownToken]):
    """Shown tokens, packed."""

    def __init__(self) -> None:
        self._logprobs, self._offsets = PackedLogprobs(), array("q")

    def extend(self, shown: Sequence[ShownToken]) -> None:
        self._logprobs.extend([token.logprobs for token in shown])
        self._offsets.extend([token.offset for token in shown])

    @property
    def nbytes(self) -> int:
        return self._logprobs.nbytes + self._offsets.itemsize * len(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> ShownToken: ...

    @overload
    def __getitem__(self, index: slice) -> list[ShownToken]: ...

    def __getitem__(self, index: int | slice) -> ShownToken | list[ShownToken]:
        if isinstance(index, slice):
            return [
                ShownToken(*pair) for pair in zip(self._logprobs[index], self._offsets[index], strict=True)
            ]
        return ShownToken(self._logprobs[index], self._offsets[index])

    def __iter__(self) -> Iterator[ShownToken]:
        return map(ShownToken, self._logprobs, self._offsets)
