"""Which replicas were chosen longest ago, for routers that have them take turns among equals."""

from __future__ import annotations

from turnout.core.interfaces.router import Replica

__all__ = ["Turns"]


class Turns:
    """Notes the choices of a router."""

    def __init__(self) -> None:
        self._count = 0
        self._chosen: dict[str, int] = {}
        """The number of the request for which each replica was chosen last, by name."""

    def last(self, replica: Replica) -> int:
        """Returns the number of the request for which a replica was chosen last; 0: for none."""
        return self._chosen.get(replica.name, 0)

    def note(self, replica: Replica) -> None:
        """Notes that a replica was chosen for the next request."""
        self._count += 1
        self._chosen[replica.name] = self._count
