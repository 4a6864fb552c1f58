"""What routers keep of replicas: which were chosen longest ago, and where those of a name stand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from turnout.core.interfaces.router import Replica

__all__ = ["Places", "Turns"]


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


class Turns:
    """Notes the choices of a router."""

    def __init__(self) -> None:
        self._count = 0
        self._chosen: OrderedDict[str, int] = OrderedDict()
        """The number of the request for which each replica was chosen last, by name; in that order."""
        self._places: dict[str, int] = {}
        """Where replicas stood, when many of them were equal."""
        self._unchosen: set[str] = set()
        """Those of them that were never chosen."""

    def idlest(self, loads: Sequence[int], least: int, replicas: Sequence[Replica]) -> int:
        """Returns the index of the replica that was chosen longest ago of those with the least load; of those
        never chosen, the first.

        loads: of `replicas`, in their order; least: the smallest of them.
        """
        ties, index = loads.count(least), -1
        if ties * ties > len(loads):
            if (found := self._by_turns(loads, least, replicas)) >= 0:
                return found
            equals = [index for index, load in enumerate(loads) if load == least]
        else:  # of a thousand, a few: the rest is passed over in one call
            equals = [index := loads.index(least, index + 1) for _ in range(ties)]
        chosen = self._chosen
        return min([(chosen.get(replicas[index].name, 0), index) for index in equals])[1]

    def note(self, replica: Replica) -> None:
        """Notes that a replica was chosen for the next request."""
        self._count += 1
        self._chosen[replica.name] = self._count
        self._chosen.move_to_end(replica.name)
        self._unchosen.discard(replica.name)

    def _by_turns(self, loads: Sequence[int], least: int, replicas: Sequence[Replica]) -> int:
        """Looks at replicas in order of their turns: of many equals, one is found sooner than all are looked
        at. Returns -1 where some were never chosen.

        One in the place of another is noticed at the other's turn at the latest.
        """
        if len(replicas) != len(self._places):
            self._place(replicas)
        if not self._unchosen:
            places = self._places
            for name in self._chosen:
                index = places.get(name, -1)
                if index < 0:
                    continue
                if replicas[index].name != name:
                    self._place(replicas)
                    break
                if loads[index] == least:
                    return index
        return -1

    def _place(self, replicas: Sequence[Replica]) -> None:
        self._places = {replica.name: index for index, replica in enumerate(replicas)}
        self._unchosen = set(self._places).difference(self._chosen)
