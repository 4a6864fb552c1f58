"""Numbers that a plugin shows in ``GET /metrics``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

__all__ = ["Figures", "HasFigures"]

_NONE: Mapping[str, float] = MappingProxyType({})


class Figures(NamedTuple):
    """A plugin's counters and gauges, by names of small letters, digits and underscores."""

    counters: Mapping[str, float] = _NONE
    """Totals since the start, from 0 on. They never fall: Prometheus takes a fall for a restart."""
    gauges: Mapping[str, float] = _NONE
    """Values of this moment."""


class HasFigures(Protocol):
    """The part of a plugin that is asked for them."""

    def figures(self) -> Figures: ...
