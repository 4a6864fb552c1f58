"""The host half of no KV memory: every sequence is computed as a whole in one step, and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.interfaces.kv import Span
from turnout.core.types.messages import KVSnapshot
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["NoCache"]


class NoCache:
    """Gives as much memory as is asked for, since none is taken; implements KVCache."""

    prefixes = None

    def __init__(self, positions: int) -> None:
        """positions: what `capacity` and `free` say, for policies that compare with them."""
        self.capacity = positions

    @property
    def free(self) -> int:
        return self.capacity

    def cached(self, sequence: TokenSequence) -> int:
        return 0

    def swappable(self, sequences: Sequence[TokenSequence]) -> int:
        return 0

    def holds(self, length: int, sequences: int) -> bool:
        return True

    def fits(self, spans: Sequence[Span]) -> bool:
        return True

    def reserve(self, spans: Sequence[Span]) -> bool:
        return True

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        """Does nothing: no position is shared."""

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        """Does nothing: a sequence holds nothing."""

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        """Does nothing: a sequence holds nothing."""

    def drain(self) -> list[Move]:
        return []

    def snapshot(self) -> KVSnapshot:
        return KVSnapshot(
            capacity=self.capacity,
            free=self.capacity,
            held=0,
            shared=0,
            computed=0,
            cached=0,
            pinned=0,
            swap=0,
            swapped=0,
            lookups=0,
            hits=0,
            evictions=0,
            unit=1,
            states=[("free", self.capacity)],
        )
