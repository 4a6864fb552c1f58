"""Faults to be found by the stress test: each spoils one thing that KV memory must get right.

Most happen once in a run, at a chance that is drawn from the seed; a logical one happens whenever it can.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from copy import copy

from stress_case import Case

from turnout.core.engine import Engine
from turnout.core.interfaces import AttentionBackend, KVCache
from turnout.core.plan import Move, Way
from turnout.core.request import Continuation, Request
from turnout.core.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.contiguous_cache import ContiguousCache
from turnout.plugins.kv_backends.paged_cache import PagedCache
from turnout.plugins.kv_backends.paged_keys import extend_chain

__all__ = ["FAULTS", "Fault"]


class Fault:
    """Something to go wrong in a run. By itself, nothing does."""

    def __init__(self, seed: int = 0) -> None:
        self.happened = 0
        """How often it did."""
        self._at = random.Random(seed).randrange(4)

    def suits(self, case: Case) -> bool:
        """Whether it could happen."""
        return True

    def break_host_half(self, kv: KVCache) -> None:
        """Before it is used."""

    def break_device_half(self, attention: AttentionBackend) -> None:
        """Before it is used."""

    def break_engine(self, engine: Engine) -> None:
        """Before it is used."""

    def carried_out(self, moves: list[Move]) -> list[Move]:
        """What is done instead of a step's moves."""
        return moves

    def after_step(self, engine: Engine) -> None:
        """Between two steps."""

    def _now(self) -> bool:
        """At each chance: is this the one?"""
        self._at -= 1
        self.happened += self._at == -1
        return self._at == -1


# ------------------------------------------------------------------ moves


class LostMove(Fault):
    """A copy, a parking or a restore that is not carried out."""

    way: Way

    def suits(self, case: Case) -> bool:
        return self.way == "copy" or _parks(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        return [move for move in moves if move.way != self.way or not self._now()]


class LostCopy(LostMove):
    way = "copy"


class LostPark(LostMove):
    way = "park"


class LostRestore(LostMove):
    way = "restore"


class MisplacedRestore(Fault):
    """A restore into other memory than it was meant for."""

    def suits(self, case: Case) -> bool:
        return _parks(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        return [self._misplaced(move) if move.way == "restore" and self._now() else move for move in moves]

    def _misplaced(self, move: Move) -> Move:
        return move._replace(target=max(0, move.target - move.length) or move.target + move.length)


class RepeatedRestore(Fault):
    """A restore that is carried out a second time, some steps later."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._delay = 1 + seed % 6
        self._again: list[Move] = []

    def suits(self, case: Case) -> bool:
        return _parks(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        if self._again:
            self._delay -= 1
            if not self._delay:
                again, self._again = self._again, []
                self.happened = 1
                return [*moves, *again]
        elif not self.happened:
            self._again = [move for move in moves if move.way == "restore"]
        return moves


class LatePark(Fault):
    """What is to be parked is copied one step too late, when its memory is somebody else's."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._late: list[Move] = []

    def suits(self, case: Case) -> bool:
        return _parks(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        late, self._late = self._late, []
        self._late = [move for move in moves if move.way == "park"]
        self.happened += bool(self._late)
        return late + [move for move in moves if move.way != "park"]


class MovesOutOfOrder(Fault):
    """A step's moves, the last one first."""

    def suits(self, case: Case) -> bool:
        return _parks(case)

    def carried_out(self, moves: list[Move]) -> list[Move]:
        self.happened += len({move.way for move in moves}) > 1
        return moves[::-1]


# ------------------------------------------------------------------ the device half


class StaleTable(Fault):
    """The device half sees some block, or slab, that a sequence had before its last copy-on-write."""

    def break_device_half(self, attention: AttentionBackend) -> None:
        kv, bind = attention._cache, attention.bind  # type: ignore[attr-defined]
        name = "slabs" if isinstance(kv, ContiguousCache) else "tables"
        seen: dict[int, object] = {}

        def bind_stale(plan: object) -> None:
            tables = getattr(kv, name)
            stale = {number: self._stale(seen.get(number), table) for number, table in tables.items()}
            seen.clear()
            seen.update((number, copy(table)) for number, table in tables.items())
            attention._cache = _With(kv, name, stale)  # type: ignore[attr-defined]
            bind(plan)  # type: ignore[arg-type]

        attention.bind = bind_stale  # type: ignore[method-assign]

    def _stale(self, before: object, now: object) -> object:
        if isinstance(now, list):
            was = before[: len(now)] if isinstance(before, list) else []
            stale = was + now[len(was) :]
            changed = stale != now
        else:
            changed = before is not None and before.start != now.start  # type: ignore[attr-defined]
            stale = before
        return stale if changed and self._now() else now


class _With:
    """A KV cache with other tables."""

    def __init__(self, kv: KVCache, name: str, tables: object) -> None:
        self._kv = kv
        setattr(self, name, tables)

    def __getattr__(self, name: str) -> object:
        return getattr(self._kv, name)


# ------------------------------------------------------------------ the host half


class PagedFault(Fault):
    def suits(self, case: Case) -> bool:
        return case.block_size is not None

    def break_host_half(self, kv: KVCache) -> None:
        assert isinstance(kv, PagedCache)
        self.break_blocks(kv)

    def break_blocks(self, kv: PagedCache) -> None:
        raise NotImplementedError


class UnheldFork(PagedFault):
    """A fork that does not count as holder of the last block it shares."""

    def break_blocks(self, kv: PagedCache) -> None:
        fork = kv.fork

        def forget(parent: TokenSequence, child: TokenSequence) -> None:
            fork(parent, child)
            if self._now():
                kv._blocks.drop(kv.tables[child.id][-1])

        kv.fork = forget  # type: ignore[method-assign]


class FreedTooEarly(PagedFault):
    """A block that is free again while a sequence holds it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._at *= 5

    def break_blocks(self, kv: PagedCache) -> None:
        self._kv = kv

    def after_step(self, engine: Engine) -> None:
        held = [sequence for request in engine.scheduler.queues.running for sequence in request.live]
        held = [sequence for sequence in held if self._kv.tables.get(sequence.id)]
        if held and self._now():
            self._kv._blocks.drop(self._kv.tables[held[0].id][0])


class LeakedBlock(PagedFault):
    """A block that is never given back."""

    def break_blocks(self, kv: PagedCache) -> None:
        release = kv.release

        def forget(sequences: Iterable[TokenSequence], *, keep: bool = False) -> None:
            sequences = list(sequences)
            for sequence in sequences:
                if not keep and kv.tables.get(sequence.id) and self._now():
                    kv.tables[sequence.id].pop()
            release(sequences, keep=keep)

        kv.release = forget  # type: ignore[method-assign]


class CommittedTooEarly(PagedFault):
    """Positions that are shared before they are computed: that of the newest token."""

    def suits(self, case: Case) -> bool:
        return case.block_size is not None and case.prefix_caching

    def break_blocks(self, kv: PagedCache) -> None:
        commit = kv.commit

        def hasten(sequence: TokenSequence, upto: int) -> None:
            self.happened += len(sequence.tokens) // kv.block_size > upto // kv.block_size
            reach = len(kv.tables[sequence.id]) * kv.block_size
            commit(sequence, max(upto, min(reach, len(sequence.tokens))))

        kv.commit = hasten  # type: ignore[method-assign]


class IgnoredSalt(PagedFault):
    """Prefixes shared between salts."""

    def suits(self, case: Case) -> bool:
        return case.block_size is not None and case.prefix_caching

    def break_blocks(self, kv: PagedCache) -> None:
        def extend(sequence: TokenSequence, blocks: int) -> list[bytes]:
            self.happened += bool(sequence.request.spec.cache_salt)
            chain = kv._lookup.chains.setdefault(sequence.id, [])
            return extend_chain(chain, sequence.tokens, "", kv.block_size, blocks)

        kv._lookup.extend = extend  # type: ignore[method-assign]


class ForgetfulKeys(PagedFault):
    """Blocks known by their own tokens, whatever comes before."""

    def suits(self, case: Case) -> bool:
        return case.block_size is not None and case.prefix_caching

    def break_blocks(self, kv: PagedCache) -> None:
        def extend(sequence: TokenSequence, blocks: int) -> list[bytes]:
            chain, size = kv._lookup.chains.setdefault(sequence.id, []), kv.block_size
            for index in range(len(chain), blocks):
                self.happened += index > 0
                own = sequence.tokens[index * size : (index + 1) * size]
                chain += extend_chain([], own, sequence.request.spec.cache_salt, size, 1)
            return chain

        kv._lookup.extend = extend  # type: ignore[method-assign]


# ------------------------------------------------------------------ progress


class SkippedPosition(Fault):
    """A prompt of which a chunk starts one position too late."""

    def after_step(self, engine: Engine) -> None:
        for request in engine.scheduler.queues.running:
            for sequence in request.live:
                if sequence.held and len(sequence.tokens) - sequence.computed > 1 and self._now():
                    sequence.computed += 1


class RejectedGuessKept(Fault):
    """After a guess was wrong, its KV counts as that of the token that came instead."""

    def break_engine(self, engine: Engine) -> None:
        advance = engine._advance

        def keep(request: Request, chosen: list[Continuation], now: float) -> object:
            wrong = [c.parent for c in chosen if 0 < len(c.tokens) <= len(c.parent.draft)]
            deltas = advance(request, chosen, now)
            for sequence in wrong:
                if sequence in request.live and self._now():
                    sequence.computed += 1
            return deltas

        engine._advance = keep  # type: ignore[method-assign,assignment]


def _parks(case: Case) -> bool:
    return case.pool.parking > 0 and case.preemption != "recompute"


FAULTS: Mapping[str, Callable[[int], Fault]] = {
    fault.__name__: fault
    for fault in (
        LostCopy,
        LostPark,
        LostRestore,
        MisplacedRestore,
        RepeatedRestore,
        LatePark,
        MovesOutOfOrder,
        StaleTable,
        UnheldFork,
        FreedTooEarly,
        LeakedBlock,
        CommittedTooEarly,
        IgnoredSalt,
        ForgetfulKeys,
        SkippedPosition,
        RejectedGuessKept,
    )
}
