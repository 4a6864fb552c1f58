"""The position of each sequence's output in its grammar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from weakref import WeakKeyDictionary

from llguidance import LLMatcher

from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.logits_processors.structured.compiler import Grammar
from turnout.plugins.logits_processors.structured.masks.free_text import FreeState, FreeTextMasks

__all__ = ["GrammarViolation", "Matchers", "Position"]


class GrammarViolation(Exception):
    """The output contains a token that its grammar does not allow."""


@dataclass(frozen=True)
class Position:
    """Where an output is in its grammar."""

    matcher: LLMatcher
    """What moves it moves it back."""
    masks: FreeTextMasks | None = None
    """Those of free places; None: the grammar has none that is known."""
    state: FreeState | None = None
    """Where the output is among them."""


class Matchers:
    """The matchers of sequences, each kept as long as its sequence exists."""

    def __init__(self, start: Callable[[Request], Grammar]) -> None:
        """start: returns a request's grammar, whose matcher is copied."""
        self._start = start
        self._known: WeakKeyDictionary[TokenSequence, _OutputMatcher] = WeakKeyDictionary()

    def at_end_of(self, sequence: TokenSequence) -> Position:
        """The position behind the sequence's last token. The caller must undo what it does to the matcher.

        Raises GrammarViolation.
        """
        known = self._known.get(sequence)
        if known is None:
            known = self._known[sequence] = self._new(sequence)
        known.consume(sequence.tokens[known.position(sequence) :])
        return Position(known.matcher, known.masks, known.state)

    def _new(self, sequence: TokenSequence) -> _OutputMatcher:
        """Forked from the matcher of the sibling with the longest common output, if there is one."""
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
            grammar = self._start(sequence.request)
            return _OutputMatcher(grammar.matcher.deep_copy(), grammar.masks)
        return nearest.fork(shared)


class _OutputMatcher:
    """A matcher and the output that it was given."""

    def __init__(self, matcher: LLMatcher, masks: FreeTextMasks | None) -> None:
        self.matcher = matcher
        self.masks = masks
        self.state = None if masks is None else masks.start
        self.tokens: list[int] = []
        """Tokens of the output. After the end of the grammar these are end-of-sequence tokens."""
        self._consumed = 0
        """The number of tokens that the matcher consumed: none after the end of the grammar."""

    def position(self, sequence: TokenSequence) -> int:
        """The position of the first token of `sequence` that the matcher was not given."""
        return len(sequence.request.prompt) + len(self.tokens)

    def consume(self, tokens: Sequence[int]) -> None:
        if not tokens:
            return
        count = self.matcher.try_consume_tokens(list(tokens))
        if count < len(tokens) and not self.matcher.is_stopped():
            raise GrammarViolation(
                f"token {tokens[count]} is not what the grammar allows at {len(self.tokens) + count}; "
                "does the decoding strategy choose by what `adjust` returns?"
            )
        self.tokens += tokens
        self._consumed += count
        if self.masks is not None and self.state is not None:
            self.state = self.masks.behind(self.state, tokens)

    def fork(self, length: int) -> _OutputMatcher:
        """A copy, as the matcher was behind its first `length` tokens."""
        fork = _OutputMatcher(self.matcher.deep_copy(), self.masks)
        fork.tokens = self.tokens[:length]
        if self.masks is not None:
            fork.state = self.masks.behind(self.masks.start, fork.tokens)
        fork._consumed = min(self._consumed, length)
        if fork._consumed < self._consumed:
            fork.matcher.rollback(self._consumed - fork._consumed)
        return fork


def _common(some: Sequence[int], others: Sequence[int]) -> int:
    """The length of the common prefix."""
    if some == others[: len(some)]:
        return len(some)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False)))
