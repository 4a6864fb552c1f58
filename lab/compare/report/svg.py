"""Draws figures as SVG for a page: text stays text, so any script shows in the reader's own fonts."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from turnout.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "check_plots", "drawn"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Of the arms; told apart by the colour-blind, too (Okabe and Ito 2008)."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "axes.titlesize": 10.5,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}


def check_plots() -> None:
    """Raises ConfigError where the plotting library is missing."""
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "the report is plotted by matplotlib, which is not installed; pip install 'turnout[lab]', or do "
            "without --report"
        )


def drawn(
    name: str, size: tuple[float, float], rows: int, columns: int, draw: Callable[[list[Axes]], None]
) -> str:
    """An ``<svg>`` of `size` inches, with `rows` x `columns` axes that `draw` fills.

    `name` sets its ids apart from those of other figures in the page.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # Widths of characters that matplotlib has no font for are guessed; the browser has one.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        draw(list(axes.flat))
        return _svg(figure)


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    return text[text.index("<svg") :]
