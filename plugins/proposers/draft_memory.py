"""The tokens of each sequence that are in a draft model's KV memory. Integers only.

::

    tokens   [ prompt and output ................ | not computed yet ]
    valid    [ KV computed from these tokens .... )
    drafted                                       [ tokens computed, valid as far as they were accepted ]
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["DraftMemory"]


@dataclass(slots=True)
class _Held:
    """What the draft holds of a sequence."""

    valid: int
    drafted: list[int] = field(default_factory=list)


class DraftMemory:
    """The KV memory of a draft model, by sequence.

    It compares tokens, so that it needs no notice of acceptance, rejection or preemption: a draft token has
    become part of its sequence, or is overwritten. When memory is short, the sequences that were not drafted
    for the longest lose theirs; they are computed again if they are drafted for again.
    """

    def __init__(self, kv: KVCache, max_positions: int) -> None:
        self.kv = kv
        self._max_positions = max_positions
        self._held: OrderedDict[TokenSequence, _Held] = OrderedDict()

    def valid(self, sequence: TokenSequence) -> int:
        """Leading tokens with valid KV; never the last token, whose logits are needed."""
        held = self._held.get(sequence)
        if held is None:
            return self.kv.cached(sequence)
        accepted = _agreeing(held.drafted, sequence.tokens[held.valid :])
        return min(held.valid + accepted, len(sequence.tokens) - 1)

    def backlog(self, sequence: TokenSequence) -> int:
        """Tokens before the last one that the draft has not computed."""
        return len(sequence.tokens) - 1 - self.valid(sequence)

    def limit(self, sequence: TokenSequence, wanted: int) -> int:
        """`wanted`, or fewer draft tokens if the draft's context has no room for more."""
        return max(0, min(wanted, self._max_positions - len(sequence.tokens)))

    def reserve(self, sequence: TokenSequence, upto: int, using: Collection[TokenSequence]) -> int | None:
        """Reserves memory up to a position; sequences in `using` keep theirs.

        Returns the position to compute from; None if there is no room.
        """
        start = self.valid(sequence)
        while not self.kv.reserve([Span(sequence, start, upto)]):
            if not self._evict(using):
                return None
        self._held[sequence] = _Held(start)
        self._held.move_to_end(sequence)
        return start

    def computed(self, sequence: TokenSequence, upto: int) -> None:
        """The sequence's tokens were computed up to a position."""
        self._held[sequence].valid = upto
        self.kv.commit(sequence, upto)

    def computed_draft(self, sequence: TokenSequence, draft_tokens: list[int]) -> None:
        """Draft tokens behind the sequence's tokens were computed."""
        self._held[sequence].drafted += draft_tokens

    def moves(self) -> list[Move]:
        return self.kv.drain()

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        gone = list(sequences)
        for sequence in gone:
            self._held.pop(sequence, None)
        self.kv.release(gone)

    def _evict(self, using: Collection[TokenSequence]) -> bool:
        oldest = next((sequence for sequence in self._held if sequence not in using), None)
        if oldest is None:
            return False
        self.forget([oldest])
        return True


def _agreeing(drafted: Sequence[int], tokens: Sequence[int]) -> int:
    """The number of leading draft tokens that equal the tokens."""
    count = 0
    for draft_token, token in zip(drafted, tokens, strict=False):
        if draft_token != token:
            break
        count += 1
    return count
