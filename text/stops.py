"""Finds stop strings in text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["StopFound", "StopMatcher"]


class StopFound(NamedTuple):
    """A complete stop string."""

    stop: str
    end: int
    """Where the stop string ends, in characters from the beginning of the text."""

    @property
    def start(self) -> int:
        return self.end - len(self.stop)


class StopMatcher:
    """Finds the stop string that is complete first, and knows how much of the text may yet become one.

    Each stop string has a Knuth-Morris-Pratt automaton, whose state is the length of the longest suffix of
    the text that begins the stop string. So the result does not depend on how the text is cut into pieces,
    and the time is linear in the text for any stop strings.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        # Longest first: of two stop strings complete at the same character, the longer one began earlier.
        self._automata = [_Automaton(stop) for stop in sorted(set(stops), key=len, reverse=True)]
        self._read = 0

    @property
    def partial(self) -> int:
        """Length of the longest suffix of the text that may be the beginning of a stop string."""
        return max((automaton.state for automaton in self._automata), default=0)

    def feed(self, piece: str, *, may_stop: bool = True) -> StopFound | None:
        """Read a piece; returns the stop string it completes. Without `may_stop` it completes none."""
        if not self._automata:
            return None
        for character in piece:
            self._read += 1
            complete = [automaton.stop for automaton in self._automata if automaton.advance(character)]
            if complete and may_stop:
                return StopFound(complete[0], self._read)
        return None


class _Automaton:
    """Matches one stop string."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        self._borders = _borders(stop)

    def advance(self, character: str) -> bool:
        """Read a character; True if it completes the stop string. Matching goes on as in ordinary text."""
        state = self.state
        while state and self.stop[state] != character:
            state = self._borders[state]
        state += self.stop[state] == character
        complete = state == len(self.stop)
        self.state = self._borders[state] if complete else state
        return complete


def _borders(text: str) -> list[int]:
    """For each prefix of `text`, the length of its longest proper prefix that is also its suffix."""
    borders, border = [0, 0], 0
    for index in range(1, len(text)):
        while border and text[border] != text[index]:
            border = borders[border]
        border += text[border] == text[index]
        borders.append(border)
    return borders
