"""What routers keep of replicas: when each was chosen last, and where those of a name stand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from turnout.core.interfaces.router import Replica

__all__ = ["Turns"]


class Turns:
    """Knows replicas by name, and notes the choices of a router."""

    def __init__(self) -> None:
        self._count = 0
        self._chosen: OrderedDict[str, int] = OrderedDict()
        """The number of the request for which each replica was chosen last, by name, 0 for those never
        chosen; in the order of these numbers, equals as they stand."""
        self._places: dict[str, int] = {}
        """Where replicas stood when they were looked for last."""

    def places(self, names: Iterable[str], replicas: Sequence[Replica]) -> list[int]:
        """Returns the indices of those of these names, as far as they are there."""
        found, fresh = [], False
        for name in names:
            at = self._places.get(name, -1)
            if not fresh and not (0 <= at < len(replicas) and replicas[at].name == name):
                self._place(replicas)
                at, fresh = self._places.get(name, -1), True
            if at >= 0:
                found.append(at)
        return found

    def idlest(self, loads: Sequence[int], least: int, replicas: Sequence[Replica]) -> int:
        """Returns the index of the replica that was chosen longest ago of those with the least load; of those
        never chosen, the first.

        loads: of `replicas`, in their order; least: the smallest of them. A replica in the place of another,
        of many that are equal, has its turn when the other would have it at the latest.
        """
        ties, index = loads.count(least), -1
        if ties * ties > len(loads):  # of many equals, one is found sooner in turn than all are looked at
            if len(replicas) != len(self._places):
                self._place(replicas)
            for name in self._chosen:
                at = self._places.get(name, -1)
                if at >= 0 and replicas[at].name != name:
                    self._place(replicas)
                    break
                if at >= 0 and loads[at] == least:
                    return at
        # Few: of a thousand, the rest is passed over in one call.
        equals = [index := loads.index(least, index + 1) for _ in range(ties)]
        chosen = self._chosen
        return min([(chosen.get(replicas[index].name, 0), index) for index in equals])[1]

    def note(self, replica: Replica) -> None:
        """Notes that a replica was chosen for the next request."""
        self._count += 1
        self._chosen[replica.name] = self._count
        self._chosen.move_to_end(replica.name)

    def _place(self, replicas: Sequence[Replica]) -> None:
        places = self._places = {replica.name: index for index, replica in enumerate(replicas)}
        if new := places.keys() - self._chosen.keys():
            turns = {**dict.fromkeys(new, 0), **self._chosen}
            self._chosen = OrderedDict(
                sorted(turns.items(), key=lambda turn: (turn[1], places.get(turn[0], -1)))
            )
