"""Finds sequences of a step that begin with the same blocks, so that these can be read once for all of them.

Only block tables are compared: prefix sharing gives equal prefixes the same blocks. Integers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from turnout.core.types.plan import Chunk

__all__ = ["SharedPrefix", "shared_prefixes"]


class SharedPrefix(NamedTuple):
    """Computed blocks that chunks have in common."""

    members: list[int]
    """Indices of chunks of the step; at least two."""
    blocks: int


def shared_prefixes(
    chunks: Sequence[Chunk],
    tables: Sequence[Sequence[int]],
    eligible: Sequence[int],
    block_size: int,
    min_saved: int,
) -> list[SharedPrefix]:
    """The shared prefixes that save the reading of at least `min_saved` positions when they are read once.

    tables: the blocks of each chunk's sequence; eligible: indices of chunks that may be members. A chunk is a
    member of at most one prefix.
    """
    groups: dict[int, list[int]] = {}
    for member in eligible:
        if chunks[member].start >= block_size:
            groups.setdefault(tables[member][0], []).append(member)
    found = (_best(group, chunks, tables, block_size) for group in groups.values() if len(group) > 1)
    return [
        prefix
        for prefix in found
        if (len(prefix.members) - 1) * prefix.blocks * block_size >= max(1, min_saved)
    ]


def _best(
    group: list[int], chunks: Sequence[Chunk], tables: Sequence[Sequence[int]], block_size: int
) -> SharedPrefix:
    """The prefix that saves most, for some or all of a group of chunks with the same first block."""
    first = tables[group[0]]
    common = np.array(
        [_common(first, tables[member], chunks[member].start // block_size) for member in group]
    )
    saved = [(int((common >= blocks).sum()) - 1) * int(blocks) for blocks in common]
    blocks = int(common[int(np.argmax(saved))])
    return SharedPrefix(
        [member for member, count in zip(group, common, strict=True) if count >= blocks], blocks
    )


def _common(one: Sequence[int], other: Sequence[int], most: int) -> int:
    """The number of leading blocks that are the same, at most `most`."""
    most = min(most, len(one))
    differs = np.flatnonzero(np.asarray(one[:most]) != np.asarray(other[:most]))
    return int(differs[0]) if len(differs) else most
