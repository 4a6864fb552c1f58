"""Figures in documents: tables, and the marks between which a script writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["markdown_table", "read_marked", "write_marked"]

UNDER = {"l": "---", "r": "--:"}


def read_marked(path: Path, name: str) -> str:
    """The text between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.

    Raises ValueError where the marks are not there, each once and in order.
    """
    return _parted(path, name)[1]


def write_marked(path: Path, name: str, content: str) -> None:
    """Replace what `read_marked` gives; raises what it does."""
    head, _, tail = _parted(path, name)
    path.write_text(f"{head}\n{content.strip()}\n{tail}", encoding="utf-8")


def _parted(path: Path, name: str) -> tuple[str, str, str]:
    """Before, between and behind, the marks with what is outside."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = path.read_text(encoding="utf-8")
    head, found, rest = text.partition(begin)
    content, closed, tail = rest.partition(end)
    if not (found and closed) or text.count(begin) + text.count(end) != 2:
        raise ValueError(f"{path} should have {begin} and then {end}, each once")
    return head + begin, content, end + tail


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """`align`: ``l`` or ``r`` for each column; by default the first is text and the others are numbers."""
    sides = align or "l" + "r" * (len(headings) - 1)
    under = "|".join(UNDER[side] for side in sides)
    return "\n".join((_row(headings), f"|{under}|", *map(_row, rows)))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
