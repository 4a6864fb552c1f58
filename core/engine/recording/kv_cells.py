"""The KV pool as watchers see it: blocks as cells, of which there are so many at most."""

from __future__ import annotations

from itertools import groupby

import msgspec

from turnout.core.types.live.news import LiveKV
from turnout.core.types.messages import KVSnapshot

__all__ = ["MAX_CELLS", "live_kv"]

MAX_CELLS = 4096
_BY_CLAIM = ("shared", "held", "cached", "free")
"""Of the blocks in one cell, the first of these states is shown."""


def live_kv(snapshot: KVSnapshot) -> LiveKV:
    blocks = sum(count for _, count in snapshot.states)
    cell = -(-blocks // MAX_CELLS) or 1
    return LiveKV(
        unit=snapshot.unit,
        capacity=snapshot.capacity,
        free=snapshot.free,
        held=snapshot.held,
        shared=snapshot.shared,
        cached=snapshot.cached,
        pinned=snapshot.pinned,
        swap=snapshot.swap,
        swapped=snapshot.swapped,
        hit_rate=round(snapshot.hit_rate, 4),
        evictions=snapshot.evictions,
        cell=cell,
        runs=snapshot.states if cell == 1 else _coarser(snapshot.states, cell),
        groups=[msgspec.to_builtins(group) for group in snapshot.groups],
    )


def _coarser(runs: list[tuple[str, int]], size: int) -> list[tuple[str, int]]:
    """The same pool in cells of so many blocks."""
    cells: list[str] = []
    claims: set[str] = set()
    room = size
    for state, count in runs:
        while count:
            claims.add(state)
            taken = min(count, room)
            count, room = count - taken, room - taken
            if not room:
                cells.append(_claim(claims))
                claims, room = set(), size
                whole = count // size
                cells += [state] * whole
                count -= whole * size
    if claims:
        cells.append(_claim(claims))
    return [(state, len(list(same))) for state, same in groupby(cells)]


def _claim(states: set[str]) -> str:
    return next((state for state in _BY_CLAIM if state in states), next(iter(states)))
