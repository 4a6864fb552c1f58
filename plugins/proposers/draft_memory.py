"""What of each sequence is in a draft's KV memory. Integers only.

::

    tokens   [ prompt and output ................ | not yet run ]
    known    [ KV is right ...................... )
    guessed                                       [ fed on top, right as far as they were accepted ]
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
class _Track:
    known: int
    guessed: list[int] = field(default_factory=list)


class DraftMemory:
    """Follows sequences by their tokens alone.

    So it need not be told of acceptance, rejection or preemption: what was guessed either has become part of
    the sequence, or is overwritten. Sequences that are not drafted for lose their memory to those that are,
    the longest unused first, and are computed again should they come back.
    """

    def __init__(self, kv: KVCache, max_positions: int) -> None:
        self.kv = kv
        self._max_positions = max_positions
        self._tracks: OrderedDict[TokenSequence, _Track] = OrderedDict()

    def known(self, sequence: TokenSequence) -> int:
        """Leading tokens that need not be run; always short of the last one."""
        track = self._tracks.get(sequence)
        if track is None:
            return self.kv.cached(sequence)
        confirmed = _agreeing(track.guessed, sequence.tokens[track.known :])
        return min(track.known + confirmed, len(sequence.tokens) - 1)

    def backlog(self, sequence: TokenSequence) -> int:
        """Tokens to run before the last one."""
        return len(sequence.tokens) - 1 - self.known(sequence)

    def depth(self, sequence: TokenSequence, wanted: int) -> int:
        """Guesses that the draft's own context has room for."""
        return max(0, min(wanted, self._max_positions - len(sequence.tokens)))

    def reserve(self, sequence: TokenSequence, upto: int, using: Collection[TokenSequence]) -> int | None:
        """Room up to that position: where to run from, or None. Those in `using` keep what they have."""
        start = self.known(sequence)
        while not self.kv.reserve([Span(sequence, start, upto)]):
            if not self._evict(using):
                return None
        self._tracks[sequence] = _Track(start)
        self._tracks.move_to_end(sequence)
        return start

    def ran(self, sequence: TokenSequence, upto: int) -> None:
        """Its own tokens have been run up to there."""
        self._tracks[sequence].known = upto
        self.kv.commit(sequence, upto)

    def fed(self, sequence: TokenSequence, guesses: list[int]) -> None:
        """These have been run behind its tokens."""
        self._tracks[sequence].guessed += guesses

    def moves(self) -> list[Move]:
        return self.kv.drain()

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        gone = list(sequences)
        for sequence in gone:
            self._tracks.pop(sequence, None)
        self.kv.release(gone)

    def _evict(self, using: Collection[TokenSequence]) -> bool:
        oldest = next((sequence for sequence in self._tracks if sequence not in using), None)
        if oldest is None:
            return False
        self.forget([oldest])
        return True


def _agreeing(guessed: Sequence[int], tokens: Sequence[int]) -> int:
    """How many of `guessed`, from the first on, came true."""
    count = 0
    for guess, token in zip(guessed, tokens, strict=False):
        if guess != token:
            break
        count += 1
    return count
