"""KV caches that check themselves at every call, and recounts of their snapshots by brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import groupby

from toy import ToyRunner

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.types.messages import KVGroupState, KVSnapshot
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.paged.host.cache import PagedCache


class _Audited:
    """Holds a cache to its contract."""

    def reserve(self, spans: Sequence[Span]) -> bool:
        expected, before = self.fits(spans), self.books()
        done = super().reserve(spans)
        assert done == expected, "fits must say what reserve does"
        if done:
            self.check_ready(spans)
        else:
            assert self.books() == before, "a refusal must change nothing"
        return done

    def release(self, sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        sequences = list(sequences)
        promised, queued = self.swappable(sequences), len(self._moves)
        super().release(sequences, swap_out=swap_out)
        swapped = sum(move.length for move in self._moves[queued:])
        assert swapped == (promised if swap_out else 0), "swappable must say what release copies"
        for sequence in sequences:
            kept = sequence.computed if swap_out and promised and sequence.held else 0
            assert super().cached(sequence) >= kept


class AuditedPaged(_Audited, PagedCache):
    def books(self) -> object:
        blocks, swap = self._blocks, self._swap
        return deepcopy(
            (
                self.group_tables,
                [vars(tables).get("_first") for tables in self._groups],
                blocks.holders,
                bytes(blocks.states),
                blocks.block_of,
                swap._swapped,
                self._moves,
            )
        )

    def check_ready(self, spans: Sequence[Span]) -> None:
        holders = Counter(block for _, _, block in holdings(self))
        assert [holders[block] for block in range(len(self._blocks.holders))] == self._blocks.holders
        assert all(group == self._blocks.groups[block] for group, _, block in holdings(self))
        free, cached = set(self._blocks._free), set(self._blocks.block_of.values()) - set(holders)
        assert len(free) + len(cached) == self._blocks.available and not free & cached
        assert free | cached | set(holders) == set(range(len(self._blocks.holders)))
        known = set(self._blocks.block_of.values())
        for sequence, start, upto in spans:
            for tables in self._groups:
                seen = tables.first_seen(start)
                assert tables.first(sequence.id) <= seen, "what the span's first query sees is there"
                for position in range(start, upto):
                    block = tables.of[sequence.id][position // self.block_size]
                    assert holders[block] == 1 and block not in known, "written, so held once"


def holdings(kv: PagedCache) -> Iterator[tuple[int, int, int]]:
    """What sequences hold: the group, the sequence's id and the block, once for each place in a table."""
    for tables in kv._groups:
        for number, table in tables.of.items():
            for block in table[tables.first(number) :]:
                yield tables.group, number, block


class AuditedContiguous(_Audited, ContiguousCache):
    def books(self) -> object:
        slabs = {number: (slab.start, slab.length, slab.readers) for number, slab in self.slabs.items()}
        return slabs, list(self._ranges.ranges), dict(self._swap._swapped), list(self._moves)

    def check_ready(self, spans: Sequence[Span]) -> None:
        for sequence, _, upto in spans:
            assert self.slabs[sequence.id].readers == 1 and upto <= self.slabs[sequence.id].length


class AuditingRunner(ToyRunner):
    """Compares the snapshot with a recount in every step."""

    engine: Engine

    def run(self, plan: Plan) -> Logits:
        self.check()
        return super().run(plan)

    def _move(self, source: int, target: int, length: int, way: str) -> None:
        """Without the slots of other groups than the first, the only one that it computes."""
        there = self.host if way == "swap_in" else self.pool
        for offset in range(length) if _groups(self.kv) else ():
            there.setdefault(source + offset, 0)
        super()._move(source, target, length, way)

    def check(self) -> None:
        running = [sequence for request in self.engine._queues.running for sequence in request.live]
        assert self.kv.snapshot() == recount(self.kv, running)


def recount(kv: KVCache, sequences: Sequence[TokenSequence]) -> KVSnapshot:
    """What `snapshot` is to say while `sequences` are those that hold memory, position by position.

    Pins must not overlap.
    """
    count = _paged if isinstance(kv, PagedCache) else _contiguous
    states, computed, swapped = count(kv, [each for each in sequences if each.held])
    seen, unit, groups = Counter(states), kv.snapshot().unit, _groups(kv)
    parts = len(groups) or 1
    held = kv.capacity - kv.free if groups else unit * (seen["held"] + seen["shared"])
    return KVSnapshot(
        capacity=kv.capacity,
        free=kv.capacity - held if not groups else unit * (seen["free"] + seen["cached"]) // parts,
        held=held,
        shared=unit * seen["shared"] // parts,
        computed=computed // parts,
        cached=unit * seen["cached"] // parts,
        passed=kv._blocks.passed * unit // parts if groups else 0,
        pinned=sum(pin.cached for pin in kv.prefixes.pinned()) if kv.prefixes and not groups else 0,
        swap=kv.swap,
        swapped=swapped // parts,
        lookups=kv.snapshot().lookups,
        hits=kv.snapshot().hits,
        evictions=kv.snapshot().evictions,
        unit=unit,
        states=[(state, len(list(run))) for state, run in groupby(states)],
        groups=groups,
    )


def _groups(kv: KVCache) -> list[KVGroupState]:
    """What each group holds and has cached, block by block."""
    if not isinstance(kv, PagedCache) or len(kv._groups) == 1:
        return []
    held = {(group, block) for group, _, block in holdings(kv)}
    used = {block for _, block in held}
    cached = {block for block in kv._blocks.block_of.values() if block not in used}
    return [
        KVGroupState(
            window=tables.window,
            held=kv.block_size * sum(group == tables.group for group, _ in held),
            cached=kv.block_size * sum(kv._blocks.groups[block] == tables.group for block in cached),
        )
        for tables in kv._groups
    ]


def _paged(kv: PagedCache, sequences: list[TokenSequence]) -> tuple[list[str], int, int]:
    size = kv.block_size
    holders = Counter(block for _, _, block in holdings(kv))
    cached = set(kv._blocks.block_of.values())
    states = [
        "shared" if holders[b] > 1 else "held" if holders[b] else "cached" if b in cached else "free"
        for b in range(kv.slots // size)
    ]
    computed = {
        (tables.of[each.id][position // size], position % size)
        for tables in kv._groups
        for each in sequences
        for position in range(tables.first(each.id) * size, each.computed)
    }
    host = {block for swapped in kv._swap._swapped.values() for block in swapped.blocks}
    return states, len(computed), len(host) * size


def _contiguous(kv: ContiguousCache, sequences: list[TokenSequence]) -> tuple[list[str], int, int]:
    states = ["free"] * kv.capacity
    for holding in kv._holdings.values():
        for slab in holding.slabs:
            state = "shared" if list(kv.slabs.values()).count(slab) > 1 else "held"
            states[slab.start : slab.start + slab.length] = [state] * slab.length
    computed = {kv.slabs[each.id].start + position for each in sequences for position in range(each.computed)}
    host = {
        piece.start + position for piece in kv._swap._swapped.values() for position in range(piece.length)
    }
    return states, len(computed), len(host)
