"""Where the output of each sequence stands in its grammar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from weakref import WeakKeyDictionary

from llguidance import LLMatcher

from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["Departed", "Matchers"]


class Departed(Exception):
    """The output holds a token that its grammar does not allow."""


class Matchers:
    """The matcher of every sequence that is asked for. It goes when the sequence does."""

    def __init__(self, beginning: Callable[[Request], LLMatcher]) -> None:
        """`beginning` is a request's grammar before its first token; it is copied."""
        self._beginning = beginning
        self._known: WeakKeyDictionary[TokenSequence, _Followed] = WeakKeyDictionary()

    def at_end_of(self, sequence: TokenSequence) -> LLMatcher:
        """The matcher behind the sequence's last token; what is done to it must be undone.

        Raises Departed.
        """
        followed = self._known.get(sequence)
        if followed is None:
            followed = self._known[sequence] = self._new(sequence)
        followed.take(sequence.tokens[followed.position(sequence) :])
        return followed.matcher

    def _new(self, sequence: TokenSequence) -> _Followed:
        """From the sibling that has most in common with it: the one it was forked from, or its like."""
        output = sequence.output
        nearest, shared = None, 0
        for sibling in sequence.request.live:
            if (other := self._known.get(sibling)) is not None:
                common = _common(other.tokens, output)
                if nearest is None or common > shared:
                    nearest, shared = other, common
                if shared >= len(output) - 1:
                    break
        if nearest is None:
            return _Followed(self._beginning(sequence.request).deep_copy())
        return nearest.fork(shared)


class _Followed:
    """A matcher, and what it has seen."""

    def __init__(self, matcher: LLMatcher) -> None:
        self.matcher = matcher
        self.tokens: list[int] = []
        """Of the output. A matcher that has stopped takes no more: what is seen then are ends of sequence."""
        self._taken = 0
        """Of those, how many the matcher took."""

    def position(self, sequence: TokenSequence) -> int:
        """Of the first token of `sequence` that it has not seen."""
        return len(sequence.request.prompt) + len(self.tokens)

    def take(self, tokens: Sequence[int]) -> None:
        if not tokens:
            return
        count = self.matcher.try_consume_tokens(list(tokens))
        if count < len(tokens) and not self.matcher.is_stopped():
            raise Departed(
                f"token {tokens[count]} is not what the grammar allows at {len(self.tokens) + count}; "
                "does the decoding strategy choose by what `adjust` returns?"
            )
        self.tokens += tokens
        self._taken += count

    def fork(self, length: int) -> _Followed:
        """As it was behind its first `length` tokens."""
        fork = _Followed(self.matcher.deep_copy())
        fork.tokens = self.tokens[:length]
        fork._taken = min(self._taken, length)
        if fork._taken < self._taken:
            fork.matcher.rollback(self._taken - fork._taken)
        return fork


def _common(some: Sequence[int], others: Sequence[int]) -> int:
    """Length of the common beginning."""
    if some == others[: len(some)]:
        return len(some)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False)))
