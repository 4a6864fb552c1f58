"""Tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

Row = Sequence[str]


def table(heads: Row, rows: Iterable[Row]) -> str:
    """Raises ValueError for a row that is not as long as the heads."""
    lines = [_line(heads), "|" + "---|" * len(heads)]
    for row in rows:
        if len(row) != len(heads):
            raise ValueError(f"a row of {len(row)} cells under {len(heads)} heads: {row}")
        lines.append(_line([each.replace("|", "\\|") for each in row]))
    return "\n".join(lines) + "\n"


def _line(cells: Row) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def markdown(text: str) -> str:
    """A docstring's text on one line."""
    return re.sub(r"``([^`]+)``", r"`\1`", " ".join(text.split()))


def paragraph(text: str) -> str:
    """A docstring's first paragraph, on one line."""
    return markdown(text.strip().partition("\n\n")[0])


def code(text: str) -> str:
    return f"`{text}`"


def listed(texts: Sequence[str], word: str = "or") -> str:
    """``a, b or c``."""
    return f" {word} ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))
