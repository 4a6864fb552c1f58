"""Steps in which nothing is guessed, and in which it is not even worked out whether to."""

from __future__ import annotations

__all__ = ["Rests"]

REFRESH = 64
"""One step in so many does not guess, so that it stays known how long that takes."""
RESTS = 2
"""Steps that pass, after one for which guessing did not pay, before that is worked out again: as many as
there are sequences, where that is more, since working it out takes time for each of them."""
PATIENCE = 4
"""Times in a row that guessing does not pay, from which on each rest is twice as long as the one before."""
LONGEST = 64
"""Steps of a rest, at most."""


class Rests:
    """Working out what pays takes time, too: where it keeps coming to nothing, it is done more rarely."""

    def __init__(self) -> None:
        self._steps = self._left = self._refusals = self._sequences = 0

    def now(self, sequences: int) -> bool:
        """A step with so many sequences is due; is it one to rest in?"""
        if sequences < self._sequences:  # what did not pay for more of them may pay now
            self.end()
        self._sequences = sequences
        self._steps += 1
        resting = self._left > 0
        self._left = max(0, self._left - 1)
        return resting or self._steps % REFRESH == 0

    def begin(self, sequences: int) -> None:
        """Guessing did not pay. sequences: 0 where there was nothing yet to work it out by."""
        length = RESTS << max(0, self._refusals - PATIENCE)
        self._left = max(sequences, min(LONGEST, length)) if sequences else RESTS
        self._refusals += 1

    def end(self) -> None:
        """Guessing pays again, or may."""
        self._left = self._refusals = 0
