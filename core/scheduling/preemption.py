"""What becomes of the KV memory of a preempted request: it is computed again later, or swapped out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from turnout.core.interfaces.kv import KVCache
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["Auto", "Preemption", "Recompute", "Swap", "SwapCosts"]


class Preemption(Protocol):
    """Decides what happens to the KV memory of a request, each time one is preempted."""

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        """Whether to swap out `sequences`, all those of one request, if there is room for them."""
        ...


class Recompute:
    """Never swaps out: what was computed is computed again."""

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        return False


class Swap:
    """Always swaps out, where there is room."""

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        return True


@dataclass(frozen=True)
class SwapCosts:
    """Seconds that swapping and computing again take on this machine, as measured at start-up."""

    moved_token: float
    """Seconds to copy one position to host memory and back."""
    computed_token: float
    """Seconds to compute a token without context."""
    computed_pair: float
    """Seconds more for each token before it."""

    def swap(self, tokens: int) -> float:
        return tokens * self.moved_token

    def recompute(self, tokens: int) -> float:
        return tokens * self.computed_token + tokens * tokens / 2 * self.computed_pair


class Auto:
    """Swaps out where that is expected to take less time than computing again."""

    def __init__(self, costs: SwapCosts) -> None:
        self.costs = costs

    def swaps_out(self, sequences: Sequence[TokenSequence], kv: KVCache) -> bool:
        tokens = kv.swappable(sequences)
        return self.costs.swap(tokens) < self.costs.recompute(tokens)
