"""The KV pool as watchers see it: blocks as cells, of which there are so many at most."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from turnout.core.interfaces.kv import BlockMap
from turnout.core.types.live.news import LiveKV
from turnout.core.types.messages import KVSnapshot

__all__ = ["MAX_CELLS", "live_kv"]

MAX_CELLS = 4096
_BY_CLAIM = ("shared", "held", "cached", "free")
"""Of the blocks in one cell, the first of these states is shown."""


def live_kv(snapshot: KVSnapshot, kv: object = None) -> LiveKV:
    """kv: of which it is a snapshot; asked who holds what, if it knows."""
    blocks = sum(count for _, count in snapshot.states)
    cell = -(-blocks // MAX_CELLS) or 1
    told = LiveKV(
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
    if isinstance(kv, BlockMap):
        _name_owners(told, kv, -(-blocks // cell))
    return told


def _name_owners(told: LiveKV, kv: BlockMap, cells: int) -> None:
    owner, users = array("i", bytes(4 * cells)), array("i", bytes(4 * cells))
    for number, (name, blocks) in enumerate(kv.pins(), start=1):
        told.pins.append(name)
        for place in _cells(blocks, told.cell):
            owner[place] = -number
    numbers: dict[str, int] = {}
    for sequence, blocks in kv.holdings():
        number = numbers.setdefault(sequence.request.id, len(numbers) + 1)
        for place in _cells(blocks, told.cell):
            owner[place] = number
            users[place] += 1
    told.holders = list(numbers)
    told.owners = [(*whose, len(list(same))) for whose, same in groupby(zip(owner, users, strict=True))]


def _cells(blocks: Sequence[int], size: int) -> Iterable[int]:
    return blocks if size == 1 else {block // size for block in blocks}


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
