"""Routes by what replicas have cached of a prompt, against how much more than others they have to do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated

from pydantic import Field

from turnout.core.engine.packed_prompt import first
from turnout.core.errors import ConfigError
from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.plugins.routers.turns import Turns

__all__ = ["Score"]

BEGIN = 256
"""Tokens that prompts must have in common to be expected where the one before went."""
EXPECTED = 16_384
"""Beginnings that are remembered, at most."""


_requests = attrgetter("requests")


class Score(Router):
    """Routes to the best sum of the cached share of a prompt, minus `weight` times the load above the least.

    A replica without a cache gets its part: as it has less to do than others, it is worth as much as one that
    has the prompt. What was sent a moment ago counts as cached up to its first 256 tokens, though the engine
    has not told yet.
    """

    reads_caches = True

    def __init__(
        self,
        weight: Annotated[
            float,
            Field(
                description="What a replica's score (the cached share of the prompt, from 0 to 1) loses when "
                "it has as many requests more than the least loaded one as replicas have on average."
            ),
        ] = 1.0,
    ) -> None:
        if not 0 < weight < float("inf"):
            raise ConfigError(f"weight must be more than 0, not {weight:g}")
        self._weight = weight
        self._expected: OrderedDict[int, str] = OrderedDict()
        """Where prompts of a beginning were sent last."""
        self._turns = Turns()

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        begin = hash((request.cache_salt, first(request.prompt, BEGIN)))
        length = len(request.prompt) or 1
        found = {**replicas[0].find(request)}
        if (expected := self._expected.get(begin)) is not None:
            found[expected] = max(found.get(expected, 0), min(BEGIN, length))
        loads = [*map(_requests, replicas)]
        least = min(loads)
        cost = self._weight / (1 + sum(loads) / len(loads))
        idlest = self._turns.idlest(loads, least, replicas)
        best, index = found.get(replicas[idlest].name, 0) / length, idlest
        for number in sorted(self._turns.places(found, replicas)):
            score = found[replicas[number].name] / length - cost * (loads[number] - least)
            if score > best:
                best, index = score, number
        self._turns.note(replicas[index])
        self._remember(begin, replicas[index].name)
        return index

    def _remember(self, begin: int, name: str) -> None:
        self._expected[begin] = name
        self._expected.move_to_end(begin)
        if len(self._expected) > EXPECTED:
            self._expected.popitem(last=False)
