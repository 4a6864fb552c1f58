"""Folds the hidden states of a prompt, in blocks that do not depend on the chunks of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout.core.interfaces.pooling import BLOCK, Pooling
from turnout.core.types.pooling import PromptPooling

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["fold"]


def fold(strategy: Pooling, of: PromptPooling, hidden: Tensor) -> None:
    """Takes in `hidden`, [positions, hidden_size], what follows on the positions that were read before.

    ::

        positions   0 ......... BLOCK ......... 2 * BLOCK ... length
        calls       [   first   ) [   second    ) [   last  )
        chunks      [      )[           )[                  )
    """
    count = len(hidden)
    if not count:
        return
    if strategy.reads != "all":
        of.state = strategy.fold(None, hidden, 0 if strategy.reads == "first" else of.length - 1)
        of.read = of.length if strategy.reads == "last" else 1
        return
    taken = 0
    while taken < count:
        filled = of.read % BLOCK
        more = min(BLOCK - filled, count - taken)
        rows = hidden[taken : taken + more]
        ends = filled + more == BLOCK or of.read + more == of.length
        if filled or not ends:
            rows = _beside(of, rows, filled)
        if ends:
            of.state = strategy.fold(of.state, rows, of.read - filled)
            of.rest = None
        of.read += more
        taken += more


def _beside(of: PromptPooling, rows: Tensor, filled: int) -> Tensor:
    """Returns the block so far, with `rows` behind the ones that it had."""
    if of.rest is None:
        of.rest = rows.new_empty((BLOCK, rows.shape[1]))
    of.rest[filled : filled + len(rows)] = rows
    block: Tensor = of.rest[: filled + len(rows)]
    return block
