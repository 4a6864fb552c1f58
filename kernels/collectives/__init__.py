"""Collectives: how the ranks of an engine on several devices add and exchange their shares of tensors."""

from turnout.kernels.collectives.choose import COLLECTIVES, open_collective
from turnout.kernels.collectives.meeting import Meeting

__all__ = ["COLLECTIVES", "Meeting", "open_collective"]
