"""Collectives by gloo, over sockets: they need no compiler, and ranks may be on several machines."""

from __future__ import annotations

from turnout.core.meeting import Meeting
from turnout.kernels.collectives.over_torch import OverTorch
from turnout.kernels.collectives.torch_groups import gloo_group

__all__ = ["Gloo"]


class Gloo(OverTorch):
    """Implements Collective."""

    name = "gloo"

    def __init__(self, meeting: Meeting, rank: int, size: int, group: int = 0) -> None:
        """Raises CollectiveError where a rank does not come."""
        super().__init__(gloo_group(meeting, rank, size, group), rank, size)
