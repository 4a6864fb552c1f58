"""Which replicas were chosen longest ago, for routers that have them take turns among equals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.interfaces.router import Replica

__all__ = ["Turns"]


class Turns:
    """Notes the choices of a router."""

    def __init__(self) -> None:
        self._count = 0
        self._chosen: dict[str, int] = {}
        """The number of the request for which each replica was chosen last, by name."""

    def longest_ago(self, indices: Iterable[int], replicas: Sequence[Replica]) -> int:
        """Returns the index of the replica that was chosen longest ago; of those never chosen, the first."""
        chosen = self._chosen
        return min([(chosen.get(replicas[index].name, 0), index) for index in indices])[1]

    def note(self, replica: Replica) -> None:
        """Notes that a replica was chosen for the next request."""
        self._count += 1
        self._chosen[replica.name] = self._count
