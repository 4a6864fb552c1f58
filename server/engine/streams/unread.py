"""How much the engine has sent that clients have not taken, over all requests."""

from __future__ import annotations

from collections.abc import Callable

from turnout.core import limits
from turnout.core.types.logprobs import PackedLogprobs
from turnout.core.types.messages import Delta

__all__ = ["Unread", "delta_size"]

DELTA_BYTES, TOKEN_BYTES = 350, 40
ITEM_BYTES, ENTRY_BYTES = 150, 120
"""What the log-probabilities of a token take, and each of the most likely tokens."""


class Unread:
    """A sum of bytes, which the streams of all requests keep."""

    def __init__(self, too_much: Callable[[], None] = lambda: None) -> None:
        """`too_much`: called when the sum has grown past its bound."""
        self.size = 0
        self._too_much = too_much

    def add(self, size: int) -> None:
        self.size += size
        if size > 0 and self.size > limits.UNREAD.most:
            self._too_much()


def delta_size(delta: Delta) -> int:
    """About the bytes that a delta takes while it waits for its client."""
    size = DELTA_BYTES + TOKEN_BYTES * len(delta.tokens)
    if delta.logprobs:
        size += len(delta.logprobs) * (ITEM_BYTES + ENTRY_BYTES * len(delta.logprobs[0].top))
    if delta.pooled is not None:
        size += len(delta.pooled.data)
    if isinstance(delta.prompt_logprobs, PackedLogprobs):
        size += delta.prompt_logprobs.nbytes
    return size
