"""How a figure is written in a table."""

from __future__ import annotations

__all__ = ["NONE", "figure"]

NONE = "–"
"""In place of a figure that does not exist."""
EXACT = 1e15
"""From about here on, a float does not tell hundredths apart."""


def figure(value: float) -> str:
    """``1,234`` for a count, ``1,234.50`` for what is measured; ``1e+300`` instead of made-up digits."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if abs(value) < EXACT else f"{value:.4g}"
