"""Merges and batches KV moves, with the same outcome as one move after the other. Integers only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from turnout.core.types.plan import Move

__all__ = ["batched", "merged"]


def merged(moves: Iterable[Move]) -> Iterator[Move]:
    """Merges each move with the one before if it continues source and target of that; drops empty moves."""
    last: Move | None = None
    for move in moves:
        if last is not None and _continues(last, move):
            last = last._replace(length=last.length + move.length)
        elif move.length:
            if last is not None:
                yield last
            last = move
    if last is not None:
        yield last


def _continues(last: Move, move: Move) -> bool:
    follows = move.source - last.source == move.target - last.target == last.length
    # A move that reads positions that the last one writes must stay separate.
    apart = move.way != "copy" or abs(move.target - move.source) >= last.length + move.length
    return last.way == move.way and follows and apart


def batched(moves: Iterable[Move], limit: int) -> Iterator[list[Move]]:
    """Runs of moves in one direction, of at most `limit` positions, all of which may be read before any is
    written."""
    run: list[Move] = []
    positions, written = 0, set[int]()
    for move in _cut(moves, limit):
        if run and (move.way != run[0].way or positions + move.length > limit or _clashes(move, written)):
            yield run
            run, positions, written = [], 0, set()
        run.append(move)
        positions += move.length
        written.update(range(move.target, move.target + move.length))
    if run:
        yield run


def _cut(moves: Iterable[Move], limit: int) -> Iterator[Move]:
    for source, target, length, way in moves:
        for done in range(0, length, limit):
            yield Move(source + done, target + done, min(limit, length - done), way)


def _clashes(move: Move, written: set[int]) -> bool:
    """Whether a move writes or reads positions that are written already.

    Only copies within the pool read and write the same memory.
    """
    writes = range(move.target, move.target + move.length)
    reads = range(move.source, move.source + move.length) if move.way == "copy" else ()
    return not (written.isdisjoint(writes) and written.isdisjoint(reads))
