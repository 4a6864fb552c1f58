"""Figures in documents: what stands between two marks is written by a script."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_marked"]


def write_marked(path: Path, name: str, content: str) -> None:
    """Replace what stands between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.

    Raises ValueError where the marks are not there, each once and in order.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = path.read_text(encoding="utf-8")
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed) or text.count(begin) + text.count(end) != 2:
        raise ValueError(f"{path} should have {begin} and then {end}, each once")
    path.write_text(f"{head}{begin}\n{content.strip()}\n{end}{tail}", encoding="utf-8")
