"""How a paged pool stands, without a walk over its block tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.paged.host.block_tables import Table
from turnout.plugins.kv_backends.paged.host.blocks import CACHED, FREE, HELD, SHARED

__all__ = ["computed_positions", "runs"]

_NAMES = {FREE: "free", CACHED: "cached", HELD: "held", SHARED: "shared"}
_RUN = re.compile(b"|".join(bytes([state]) + b"+" for state in _NAMES))


def runs(states: bytearray) -> list[tuple[str, int]]:
    """Neighbours of one state, counted together."""
    return [(_NAMES[states[run.start()]], run.end() - run.start()) for run in _RUN.finditer(states)]


def computed_positions(held: int, holders: Iterable[tuple[TokenSequence, Table]], block_size: int) -> int:
    """Positions with a computed token in `held` blocks, those of `holders`' tables.

    All blocks but the last few of a table are full, whoever shares them: only those few are looked at.
    """
    partial: dict[int, int] = {}
    for sequence, table in holders:
        for index in range(sequence.computed // block_size, len(table)):
            filled = max(0, sequence.computed - index * block_size)
            partial[table[index]] = max(filled, partial.get(table[index], 0))
    return (held - len(partial)) * block_size + sum(partial.values())
