"""Our eviction policies and length predictors, each with one mistake."""

from __future__ import annotations

from turnout.core.interfaces.eviction import CachedBlock
from turnout.core.interfaces.scheduling import LengthPredictor
from turnout.core.types.request import RequestView
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.predictors.history import History


class GivesUpTwice(Lru):
    """Does not forget what it gave up."""

    def pop(self) -> int:
        return next(iter(self._blocks))


class GivesUpTheHeld(Lru):
    """Does not forget what is held again."""

    def remove(self, block: int) -> None:
        pass


class StartsFirst(Lru):
    """Gives up the start of a prefix before its end."""

    def pop(self) -> int:
        return self._blocks.popitem()[0]


class Searches(Lru):
    """Looks at every block to find one."""

    def add(self, block: CachedBlock) -> None:
        super().add(block)
        sorted(self._blocks)


class LooksInOneGroup(Lru):
    """Does not forget what is held again of layers with windows."""

    def __init__(self) -> None:
        super().__init__()
        self.others = set[int]()

    def add(self, block: CachedBlock) -> None:
        super().add(block)
        if block.group:
            self.others.add(block.block)

    def remove(self, block: int) -> None:
        if block not in self.others:
            super().remove(block)


EVICTIONS = [GivesUpTwice, GivesUpTheHeld, StartsFirst, Searches, LooksInOneGroup]


class LearnsByGuessing(History):
    """A prediction that changes the next one."""

    def predict(self, request: RequestView) -> float:
        self.predictions = getattr(self, "predictions", 0) + 1
        return super().predict(request) + self.predictions


class Endless(LengthPredictor):
    """A prediction that is not a number of tokens."""

    def predict(self, request: RequestView) -> float:
        return float("inf")


class KeepsEveryRequest(History):
    """Remembers requests, not their lengths."""

    def observe(self, request: RequestView) -> None:
        self.requests = [*getattr(self, "requests", ()), request]


PREDICTORS = [LearnsByGuessing, Endless, KeepsEveryRequest]
