"""Where the ranks of an engine find each other, on one machine and between machines."""

from __future__ import annotations

from typing import NamedTuple

from turnout.core.meeting import Meeting

__all__ = ["Meetings"]


class Meetings(NamedTuple):
    """As one rank has them."""

    here: Meeting
    """Those of its machine."""
    between: Meeting | None = None
    """Those of several machines; None: there is one machine."""
