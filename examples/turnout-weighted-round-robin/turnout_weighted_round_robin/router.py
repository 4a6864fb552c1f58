"""A router that sends requests to replicas in turn, in proportion to weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from turnout import Replica, Routable, Router
from turnout_weighted_round_robin.weights import checked

__all__ = ["WeightedRouter"]


class WeightedRouter(Router):
    """Chooses replicas in turn, by weight, for machines of different speeds.

    This is nginx's smooth weighted round robin: each turn adds its weight to every replica's score, chooses
    the replica with the highest score, and subtracts the sum of all weights from it. This spreads the turns
    of a heavy replica over the round.
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
        """By replica name: how many requests it should have had by now but has not."""

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        weights = [self._weights.get(replica.name, 1.0) for replica in replicas]
        due = [self._due.get(replica.name, 0.0) + w for replica, w in zip(replicas, weights, strict=True)]
        chosen = max(range(len(replicas)), key=due.__getitem__)
        due[chosen] -= sum(weights)
        self._due = {replica.name: d for replica, d in zip(replicas, due, strict=True)}
        return chosen
