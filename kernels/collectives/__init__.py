"""Collectives: how the ranks of an engine on several devices add and exchange their shares of tensors."""

from turnout.core.meeting import Meeting
from turnout.kernels.collectives.choose import COLLECTIVES, collective_of_machine, open_collective

__all__ = ["COLLECTIVES", "Meeting", "collective_of_machine", "open_collective"]
