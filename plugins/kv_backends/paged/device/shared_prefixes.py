"""Sequences of a step that begin with the same blocks, so that one pass over these may serve all of them.

Told by the block tables alone: what prefix sharing made one block is one block here. Integers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from turnout.core.types.plan import Chunk

__all__ = ["SharedPrefix", "shared_prefixes"]


class SharedPrefix(NamedTuple):
    """Computed positions that chunks have in common."""

    members: list[int]
    """Of the step's chunks; two at least."""
    blocks: int


def shared_prefixes(
    chunks: Sequence[Chunk],
    tables: Sequence[Sequence[int]],
    eligible: Sequence[int],
    block_size: int,
    worth: int,
) -> list[SharedPrefix]:
    """The prefixes of which reading them once saves reading `worth` positions or more.

    tables: of each chunk's sequence, blocks of the pool; eligible: chunks that may be members. A chunk is in
    one group at most.
    """
    groups: dict[int, list[int]] = {}
    for member in eligible:
        if chunks[member].start >= block_size:
            groups.setdefault(tables[member][0], []).append(member)
    found = (_best(group, chunks, tables, block_size) for group in groups.values() if len(group) > 1)
    return [
        prefix for prefix in found if (len(prefix.members) - 1) * prefix.blocks * block_size >= max(1, worth)
    ]


def _best(
    group: list[int], chunks: Sequence[Chunk], tables: Sequence[Sequence[int]], block_size: int
) -> SharedPrefix:
    """Of a group that shares its first block: as many blocks, for as many of it, as save most."""
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
    """How many leading blocks are the same, `most` at most."""
    most = min(most, len(one))
    differs = np.flatnonzero(np.asarray(one[:most]) != np.asarray(other[:most]))
    return int(differs[0]) if len(differs) else most
