"""Routes to one replica after the other."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.interfaces.router import Replica, Routable, Router

__all__ = ["RoundRobin"]


class RoundRobin(Router):
    """Routes to one replica after the other, whatever their load."""

    watches = False

    def __init__(self) -> None:
        self._next = 0

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        chosen = self._next % len(replicas)
        self._next = chosen + 1
        return chosen
