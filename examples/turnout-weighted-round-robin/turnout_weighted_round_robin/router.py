"""A router: replicas get requests in turn, one of weight 3 thrice for each time of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from turnout import Replica, Routable, Router
from turnout_weighted_round_robin.weights import checked

__all__ = ["WeightedRouter"]


class WeightedRouter(Router):
    """Replicas in turn, by weight, for machines that are not equally fast.

    Smooth weighted round robin, as nginx has it: each turn gives every replica its weight, and takes the
    weights of all from the one with most, which is chosen. So the turns of a heavy one are spread over the
    round.
    """

    watches = False

    def __init__(
        self,
        weights: Annotated[
            dict[str, float] | None,
            Field(description="""Requests of a replica in a round, 1 for others: '{"replica-0": 3}'."""),
        ] = None,
    ) -> None:
        self._weights = checked(weights)
        self._due: dict[str, float] = {}
        """Of each replica: the requests that it should have had by now and has not."""

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        weights = [self._weights.get(replica.name, 1.0) for replica in replicas]
        due = [self._due.get(replica.name, 0.0) + w for replica, w in zip(replicas, weights, strict=True)]
        chosen = max(range(len(replicas)), key=due.__getitem__)
        due[chosen] -= sum(weights)
        self._due = {replica.name: d for replica, d in zip(replicas, due, strict=True)}
        return chosen
