"""Evicts the blocks that are cheapest to compute again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from turnout.core.interfaces.eviction import CachedBlock
from turnout.plugins.evictions.greedy_dual import GreedyDual

__all__ = ["Cost"]


class Cost(GreedyDual):
    """Evicts first what takes least to compute again, weighed against how long ago it was used.

    The cost of a token grows with the tokens before it, which it attends to, so the blocks of a long prefix
    cost more than those of a short one: on average 1 + reach / (2 `context`) for each token, where a token
    without context costs 1. Costs age as in GreedyDual-Size (Cao and Irani, "Cost-aware WWW proxy caching
    algorithms", 1997).
    """

    def __init__(
        self,
        context: Annotated[
            int,
            Field(
                gt=0,
                description="Tokens of context at which attending to them takes as long as all else that a "
                "token takes: about six times the model's hidden size.",
            ),
        ] = 8192,
    ) -> None:
        super().__init__()
        self._context = context

    def worth(self, block: CachedBlock) -> float:
        return 1 + block.reach / (2 * self._context)
