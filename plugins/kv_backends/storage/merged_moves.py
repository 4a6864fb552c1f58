"""KV moves made fewer and longer, with the same outcome as one after the other. Integers only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from turnout.core.types.plan import Move

__all__ = ["batched", "joined"]


def joined(moves: Iterable[Move]) -> Iterator[Move]:
    """Those that go on where the one before ended, at both ends, made one; empty ones left out."""
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
    # One that reads what the last wrote comes after it.
    apart = move.way != "copy" or abs(move.target - move.source) >= last.length + move.length
    return last.way == move.way and follows and apart


def batched(moves: Iterable[Move], limit: int) -> Iterator[list[Move]]:
    """Runs of one way, of at most `limit` positions, that may all be read before any is written."""
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
    """Does it write to what is written to already, or read it? Only copies read and write the same memory."""
    writes = range(move.target, move.target + move.length)
    reads = range(move.source, move.source + move.length) if move.way == "copy" else ()
    return not (written.isdisjoint(writes) and written.isdisjoint(reads))
