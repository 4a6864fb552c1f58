"""Collects the figures of plugins for the engine's report, and leaves out what no metric can show."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from turnout.core import limits
from turnout.core.interfaces.figures import Figures
from turnout.core.plugin_faults import PluginFaults, plugin_errors, title_of
from turnout.core.types.messages import PluginFigure

__all__ = ["Asked", "FigureCollector", "checked_number"]

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Asked(NamedTuple):
    """A plugin, and how it is asked."""

    kind: str
    plugin: object
    figures: Callable[[], Figures]


class FigureCollector:
    """Asks plugins, which are named by their kinds. A fault costs the figures of that plugin alone."""

    def __init__(self) -> None:
        self._faults: dict[str, PluginFaults] = {}

    def collect(self, plugins: Iterable[Asked]) -> list[PluginFigure]:
        found: list[PluginFigure] = []
        for kind, plugin, figures in plugins:
            try:
                found += list(_checked(title_of(plugin, kind), figures()))  # all or none
            except plugin_errors() as error:
                faults = self._faults.setdefault(kind, PluginFaults(kind, logger))
                faults.report(plugin, "figures", error)
        return found


def _checked(title: str, figures: Figures) -> Iterator[PluginFigure]:
    """Raises ValueError for figures that no metric can show."""
    if len(figures.counters) + len(figures.gauges) > limits.FIGURES.most:
        raise ValueError(f"a plugin may have {limits.FIGURES.whole} counters and gauges")
    for counter, values in ((True, figures.counters), (False, figures.gauges)):
        for name, value in values.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ValueError(
                    f"{str(name)[:80]!r} is no name: it must have small letters, digits and underscores"
                )
            number = checked_number(name, value, counter=counter)
            yield PluginFigure(title, name, number, counter)


def checked_number(name: str, value: float, *, counter: bool) -> float:
    """Returns the value of a metric as a float. Raises ValueError for one that makes no valid metric."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}, but must be finite")
    if counter and number < 0:
        raise ValueError(f"the counter {name} is {number}, but must not be below 0")
    return number
