"""Finds stop strings in text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["StopFound", "StopMatcher", "StopStrings"]


class StopFound(NamedTuple):
    """A complete stop string."""

    stop: str
    end: int
    """Where the stop string ends, in characters from the beginning of the text."""

    @property
    def start(self) -> int:
        return self.end - len(self.stop)


class StopStrings:
    """The stop strings of a request. The choices of a request share one, since it holds their tables."""

    def __init__(self, stops: Sequence[str]) -> None:
        # Longest first: of two stop strings complete at the same character, the longer one began earlier.
        self.patterns = [_Pattern(stop) for stop in sorted(set(stops), key=len, reverse=True)]


class StopMatcher:
    """Finds the stop string that is complete first, and knows how much of the text may yet become one.

    Each stop string has a Knuth-Morris-Pratt automaton, whose state is the length of the longest suffix of
    the text that begins the stop string. So the result does not depend on how the text is cut into pieces,
    and the time is linear in the text for any stop strings. Text in which no stop string begins is searched
    by `str.find`.
    """

    def __init__(self, stops: StopStrings) -> None:
        self._automata = [_Automaton(pattern) for pattern in stops.patterns]
        self._read = 0

    @property
    def partial(self) -> int:
        """Length of the longest suffix of the text that may be the beginning of a stop string."""
        longest = 0
        for automaton in self._automata:
            longest = max(longest, automaton.state)
        return longest

    def feed(self, piece: str, *, may_stop: bool = True) -> StopFound | None:
        """Read a piece; returns the stop string it completes. Without `may_stop` it completes none."""
        first, found = len(piece) + 1, None
        for automaton in self._automata:
            if not automaton.state and automaton.first not in piece:
                continue
            end = automaton.read(piece, first if may_stop else 0)
            if may_stop and 0 < end < first:  # at the same end, the longer one came before
                first, found = end, automaton.stop
        if found is not None:
            return StopFound(found, self._read + first)
        self._read += len(piece)
        return None


class _Pattern:
    """A stop string and, for each of its prefixes, the prefix's border.

    The border of a text is its longest proper prefix that is also its suffix. Borders are computed when a
    text comes to match that far, so a long stop string that no text resembles costs nothing.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self._borders = [0, 0]

    def border(self, length: int) -> int:
        """The length of the border of the prefix of this length."""
        text, borders = self.stop, self._borders
        while len(borders) <= length:
            index, border = len(borders) - 1, borders[-1]
            while border and text[border] != text[index]:
                border = borders[border]
            borders.append(border + (text[border] == text[index]))
        return borders[length]


class _Automaton:
    """Matches one stop string."""

    __slots__ = ("_pattern", "first", "state", "stop")

    def __init__(self, pattern: _Pattern) -> None:
        self._pattern = pattern
        self.stop = pattern.stop
        self.first = pattern.stop[0]
        self.state = 0

    def read(self, piece: str, before: int) -> int:
        """Reads a piece. Returns where the first match that ends before `before` ends, and reads no further.

        Else returns 0. Matches that end later are read as ordinary text.
        """
        stop, border, state, position = self.stop, self._pattern.border, self.state, 0
        while position < len(piece):
            if not state:
                position = piece.find(self.first, position)
                if position < 0:
                    break
            character = piece[position]
            while state and stop[state] != character:
                state = border(state)
            state += stop[state] == character
            position += 1
            if state == len(stop):
                if position < before:
                    return position
                state = border(state)
        self.state = state
        return 0
