"""Log-probabilities of tokens, as decisions, sequences and messages carry them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from operator import eq
from typing import Any, overload

import msgspec

__all__ = ["PackedLogprobs", "TokenLogprobs"]


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


class PackedLogprobs(Sequence[TokenLogprobs]):
    """Log-probabilities of many tokens in a tenth of the memory that as many objects take.

    Items are made as they are read: 12 bytes are kept for each entry, not 120.
    """

    def __init__(self, items: Iterable[TokenLogprobs] = ()) -> None:
        """Raises OverflowError as `extend` does."""
        self._tokens, self._logprobs = array("i"), array("d")
        self._top_tokens, self._top_logprobs = array("i"), array("d")
        self._ends = array("q")
        """For each token, where its part of the most likely ones ends."""
        self.extend(items)

    def extend(self, items: Iterable[TokenLogprobs]) -> None:
        """Raises OverflowError for what is no token id, as 32 bits have one, and then has added nothing."""
        added = list(items)
        tokens = array("i", [item.token for item in added])
        top_tokens = array("i", [token for item in added for token, _ in item.top])
        self._logprobs.extend(item.logprob for item in added)
        self._top_logprobs.extend(logprob for item in added for _, logprob in item.top)
        self._tokens += tokens
        self._top_tokens += top_tokens
        end = self._ends[-1] if self._ends else 0
        for item in added:
            self._ends.append(end := end + len(item.top))

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return sum(part.itemsize * len(part) for part in self._arrays)

    @property
    def _arrays(self) -> tuple[array[Any], ...]:
        return self._tokens, self._logprobs, self._top_tokens, self._top_logprobs, self._ends

    def parts(self) -> list[bytes]:
        """What `of_parts` makes an equal one of, in another process of this machine."""
        return [part.tobytes() for part in self._arrays]

    @classmethod
    def of_parts(cls, parts: Sequence[bytes]) -> PackedLogprobs:
        """The one whose `parts` these are."""
        made = cls()
        for own, part in zip(made._arrays, parts, strict=True):
            own.frombytes(part)
        return made

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, index: int) -> TokenLogprobs: ...

    @overload
    def __getitem__(self, index: slice) -> list[TokenLogprobs]: ...

    def __getitem__(self, index: int | slice) -> TokenLogprobs | list[TokenLogprobs]:
        if isinstance(index, slice):
            return [self._item(at) for at in range(*index.indices(len(self)))]
        return self._item(range(len(self))[index])

    def __iter__(self) -> Iterator[TokenLogprobs]:
        return map(self._item, range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Whether a sequence has the same items."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def _item(self, at: int) -> TokenLogprobs:
        part = slice(self._ends[at - 1] if at else 0, self._ends[at])
        top = list(zip(self._top_tokens[part], self._top_logprobs[part], strict=True))
        return TokenLogprobs(self._tokens[at], self._logprobs[at], top)
