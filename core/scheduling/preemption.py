"""What becomes of the KV memory of a preempted request: it is computed again later, or swapped out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from turnout.core.interfaces.kv import KVCache
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["Auto", "Preemption", "Recompute", "Swap", "SwapCosts"]


class Preemption(Protocol):
    """Decides, each time somebody is preempted."""

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        """Should `sequences`, all of a request's, be swapped out? Where there is no room they cannot be."""
        ...


class Recompute:
    """Never swap out."""

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        return False


class Swap:
    """Always swap out."""

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        return True


@dataclass(frozen=True)
class SwapCosts:
    """What this machine takes, in seconds, for either way; measured at start-up."""

    moved_token: float
    """To host memory and back again, for each position."""
    computed_token: float
    """Computing a token that has no context."""
    computed_pair: float
    """And, for each token before it, this much more."""

    def swap(self, tokens: int) -> float:
        return tokens * self.moved_token

    def recompute(self, tokens: int) -> float:
        return tokens * self.computed_token + tokens * tokens / 2 * self.computed_pair


class Auto:
    """Swap out where the model says that moving takes less time than computing again."""

    def __init__(self, costs: SwapCosts) -> None:
        self.costs = costs

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        tokens = kv.swappable(sequences)
        return self.costs.swap(tokens) < self.costs.recompute(tokens)
