"""Text that comes in pieces, for readers that are written as if all of it were there.

A reader is a generator: it yields where it needs more text. So no result depends on how the text is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

__all__ = ["WHITE_SPACE", "Malformed", "Reading", "Source"]

Result = TypeVar("Result")
Reading = Generator[None, None, Result]
"""A reader that returns a result."""

WHITE_SPACE = " \t\r\n"
NOT_WHITE = re.compile(r"[^ \t\r\n]")


class Malformed(Exception):
    """The text is not what its format says."""


class Source:
    """The text that has come and was not taken yet."""

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        """No more text will come."""
        self.position = 0
        """Characters taken so far."""
        self._taken: list[str] | None = None
        self._taken_from = 0
        """Where that begins."""

    def more(self) -> Reading[bool]:
        """Waits for more text; returns False where none will come."""
        if self.ended:
            return False
        yield
        return True

    def take(self, count: int) -> str:
        """Takes so many characters of the text that is there."""
        taken, self.text = self.text[:count], self.text[count:]
        self.position += len(taken)
        if self._taken is not None and taken:
            self._taken.append(taken)
        return taken

    def put_back(self, text: str) -> None:
        """Undoes the last `take` in a reader, of this text."""
        self.text = text + self.text
        self.position -= len(text)
        if self._taken is not None and text:
            self._taken[-1] = self._taken[-1].removesuffix(text)

    def remember(self) -> None:
        """Keeps what is taken from now on, for `forget`."""
        self._taken, self._taken_from = [], self.position

    def forget(self) -> str:
        """Returns what was taken since `remember`, and keeps no more."""
        taken, self._taken = "".join(self._taken or ()), None
        return taken

    @property
    def read(self) -> int:
        """Characters that were taken for good."""
        return self.position if self._taken is None else self._taken_from

    # -------------------------------------------------------------- readers

    def skip_white_space(self) -> Reading[bool]:
        """Takes white space; returns whether other text follows, rather than the end."""
        while True:
            if found := NOT_WHITE.search(self.text):
                self.take(found.start())
                return True
            self.take(len(self.text))
            if not (yield from self.more()):
                return False

    def starts_with(self, words: Sequence[str]) -> Reading[str | None]:
        """Returns the first of `words` that the text begins with, and takes nothing."""
        for word in words:
            while len(self.text) < len(word) and word.startswith(self.text):
                if not (yield from self.more()):
                    break
            if self.text.startswith(word):
                return word
        return None

    def comes_first(self, words: Sequence[str]) -> Reading[str | None]:
        """Returns the first of `words` that comes behind white space, which is taken only then."""
        self.remember()
        yield from self.skip_white_space()
        word = yield from self.starts_with(words)
        skipped = self.forget()
        if word is None:
            self.put_back(skipped)
        return word

    def expect(self, word: str) -> Reading[None]:
        """Takes a word. Raises Malformed if something else follows."""
        if (yield from self.starts_with((word,))) is None:
            raise Malformed
        self.take(len(word))

    def until(self, markers: Sequence[str], emit: Callable[[str], None]) -> Reading[str | None]:
        """Takes text up to the first of `markers`, and the marker; returns it, or None at the end.

        The text before it goes to `emit` as soon as it cannot be the beginning of a marker.
        """
        while True:
            if found := _first(self.text, markers):
                start, marker = found
                if start:
                    emit(self.take(start))
                self.take(len(marker))
                return marker
            if sure := len(self.text) - (0 if self.ended else _held(self.text, markers)):
                emit(self.take(sure))
            if not (yield from self.more()):
                return None


def _first(text: str, markers: Sequence[str]) -> tuple[int, str] | None:
    """The marker that begins first, the longest of those that begin there, and where."""
    found = [(start, -len(marker), marker) for marker in markers if (start := text.find(marker)) >= 0]
    if not found:
        return None
    start, _, marker = min(found)
    return start, marker


def _held(text: str, markers: Sequence[str]) -> int:
    """The length of the longest suffix that may be the beginning of a marker."""
    longest = 0
    for marker in markers:
        for length in range(min(len(text), len(marker) - 1), longest, -1):
            if text.endswith(marker[:length]):
                longest = length
                break
    return longest
