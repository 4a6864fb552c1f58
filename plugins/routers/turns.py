"""What routers keep of replicas: which were chosen longest ago, and where those of a name stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.interfaces.router import Replica

__all__ = ["Places", "Turns"]


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


class Places:
    """Knows replicas by name, for routers that look at a few of many."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def of(self, names: Iterable[str], replicas: Sequence[Replica]) -> list[int]:
        """Returns the indices of those of these names, as far as they are there."""
        found, fresh = [], False
        for name in names:
            at = self._places.get(name, -1)
            if not fresh and not (0 <= at < len(replicas) and replicas[at].name == name):
                self._places = {replica.name: index for index, replica in enumerate(replicas)}
                at, fresh = self._places.get(name, -1), True
            if at >= 0:
                found.append(at)
        return found
