"""Aligned columns of text."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aligned", "tabular"]


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Returns a line for each row. Columns are as wide as their widest cell; the last one is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def tabular(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns lines with figures: all columns but the first are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return aligned([[cell.rjust(widths[i]) if i else cell for i, cell in enumerate(row)] for row in rows])
