"""Refuses text of more tokens than a limit before all of it is tokenized.

Tokenizing takes up to 200 bytes of memory for each byte of text, and tells the number of tokens at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from turnout.core.errors import ContextExceeded

__all__ = ["check_length"]

WHOLE = 2**20
"""Bytes that are tokenized at once in any case."""
PIECE = 2**16
"""Characters of a piece."""
NEAR = 1024
"""Characters before the end of a piece among which a place to cut is looked for."""
GAP = re.compile(r"\S ")
"""A text is cut before the first space after a word: tokens nearly always begin there."""
SLACK = 256
"""Tokens by which cutting a text once may change their number, where there is no such place: tokens soon are
those of the whole again."""


def check_length(text: str, size: int, limit: int, count: Callable[[str], int]) -> None:
    """Raises ContextExceeded if a long text has more than `limit` tokens.

    size: the text's bytes. count: returns the number of tokens of a piece.
    """
    if size <= WHOLE:
        return
    tokens = allowance = read = 0
    for piece in _pieces(text):
        tokens += count(piece)
        read += len(piece)
        if tokens > limit + allowance:
            raise ContextExceeded.of(
                limit,
                f"the prompt has {len(text):,} characters, of which the first {read:,} are about {tokens:,}; "
                "shorten the prompt",
            )
        allowance += SLACK


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces, cut between words where there are any."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text) and (gap := GAP.search(text, end - NEAR, end)):
            end = gap.start() + 1
        yield text[start:end]
        start = end
