"""The state of a paged pool, found without a walk over its block tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from turnout.core.types.messages import KVGroupState
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged.host.block_tables import BlockTable, SequenceTables
from turnout.plugins.kv_backends.paged.host.blocks import CACHED, FREE, HELD, SHARED, BlockPool

__all__ = ["computed_positions", "group_states", "runs"]

_NAMES = {FREE: "free", CACHED: "cached", HELD: "held", SHARED: "shared"}
_RUN = re.compile(b"|".join(bytes([state]) + b"+" for state in _NAMES))


def runs(states: bytearray) -> list[tuple[str, int]]:
    """The states of neighbouring blocks, run-length encoded."""
    return [(_NAMES[states[run.start()]], run.end() - run.start()) for run in _RUN.finditer(states)]


def computed_positions(
    held: int, holders: Iterable[tuple[TokenSequence, BlockTable]], block_size: int
) -> int:
    """Positions with a computed token in the `held` blocks of the holders' tables.

    In each table all blocks but the last few are full, shared or not: only those few are looked at.
    """
    partial: dict[int, int] = {}
    for sequence, table in holders:
        for index in range(sequence.computed // block_size, len(table)):
            filled = max(0, sequence.computed - index * block_size)
            partial[table[index]] = max(filled, partial.get(table[index], 0))
    return (held - len(partial)) * block_size + sum(partial.values())


def group_states(blocks: BlockPool, groups: Sequence[SequenceTables], block_size: int) -> list[KVGroupState]:
    """What each group has of the pool."""
    counts = Counter(zip(blocks.groups, blocks.states, strict=True))
    return [
        KVGroupState(
            window=tables.window,
            held=(counts[tables.group, HELD] + counts[tables.group, SHARED]) * block_size,
            cached=counts[tables.group, CACHED] * block_size,
        )
        for tables in groups
    ]
