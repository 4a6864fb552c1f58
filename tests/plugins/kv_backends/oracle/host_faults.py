"""Mistakes of the host half: who holds what, what is found under which key, what is shared when."""

from __future__ import annotations

from collections.abc import Iterable

from fault import Fault, swaps_out
from stress_case import Case

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.types.plan import Move
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache
from turnout.plugins.kv_backends.paged.host.attach import Attachment
from turnout.plugins.kv_backends.paged.host.block_hashes import extend_hashes
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.kv_backends.paged.host.window_tables import WindowTables

__all__ = [
    "CommittedTooEarly",
    "ForgetfulKeys",
    "ForgottenToForget",
    "FreedTooEarly",
    "IgnoredSalt",
    "KeptKey",
    "KeysAhead",
    "LateCheckpoint",
    "LeakedBlock",
    "LeakedSlab",
    "MissedCopyOnWrite",
    "SiblingsTakenForEqual",
    "UnheldFork",
    "WindowFreedTooEarly",
]


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
            if self.now():
                kv._blocks.release(kv.tables[child.id][-1])

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
        if held and self.now():
            self._kv._blocks.release(self._kv.tables[held[0].id][0])


class LeakedBlock(PagedFault):
    """A block that is never given back."""

    def break_blocks(self, kv: PagedCache) -> None:
        release = kv.release

        def forget(sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
            sequences = list(sequences)
            for sequence in sequences:
                if not swap_out and kv.tables.get(sequence.id) and self.now():
                    kv.tables[sequence.id].pop()
            release(sequences, swap_out=swap_out)

        kv.release = forget  # type: ignore[method-assign]


class LeakedSlab(Fault):
    """The slabs of a request that are never given back."""

    def suits(self, case: Case) -> bool:
        return case.block_size is None

    def break_host_half(self, kv: KVCache) -> None:
        assert isinstance(kv, ContiguousCache)
        give_back = kv._give_back_if_unused

        def forget(request: Request) -> None:
            if kv._holdings[request].sequences or not self.now():
                give_back(request)
            else:
                del kv._holdings[request]

        kv._give_back_if_unused = forget  # type: ignore[method-assign]


class MissedCopyOnWrite(Fault):
    """From some time on, who writes to what it shares with a sibling writes in place.

    Not once: of the sequences that write to a block, one may do so in place.
    """

    def begun(self) -> bool:
        return self.now() or self.happened > 0

    def break_host_half(self, kv: KVCache) -> None:
        if isinstance(kv, ContiguousCache):
            assign_slab = kv._assign_slab

            def in_place(span: Span) -> None:
                slab = kv.slabs.get(span.sequence.id)
                if slab is None or slab.readers == 1 or not self.begun():
                    assign_slab(span)

            kv._assign_slab = in_place  # type: ignore[method-assign]
        else:
            assert isinstance(kv, PagedCache)
            tables, copy_shared = kv._tables, kv._tables._copy_shared

            def not_own(span: Span, moves: list[Move]) -> None:
                if not tables._shared(span) or not self.begun():
                    copy_shared(span, moves)

            tables._copy_shared = not_own  # type: ignore[method-assign]


class KeptKey(PagedFault):
    """A block that is written to and found by the key of what was in it."""

    def suits(self, case: Case) -> bool:
        return _shares(case)

    def break_blocks(self, kv: PagedCache) -> None:
        blocks, unregister = kv._blocks, kv._blocks.unregister

        def keep(block: int) -> None:
            if blocks.hashes[block] is None or not blocks.holders[block]:
                unregister(block)
            else:
                self.happened += 1

        blocks.unregister = keep  # type: ignore[method-assign]


class CommittedTooEarly(PagedFault):
    """Positions that are shared before they are computed: that of the newest token."""

    def suits(self, case: Case) -> bool:
        return _shares(case)

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
        return _shares(case)

    def break_blocks(self, kv: PagedCache) -> None:
        def extend(sequence: TokenSequence, blocks: int) -> list[bytes]:
            self.happened += bool(sequence.request.spec.cache_salt)
            chain = kv._attacher.hashes.setdefault(sequence.id, [])
            return extend_hashes(chain, sequence.tokens, "", kv.block_size, blocks)

        kv._attacher.extend_hashes = extend  # type: ignore[method-assign]


class ForgetfulKeys(PagedFault):
    """Blocks known by their own tokens, whatever comes before."""

    def suits(self, case: Case) -> bool:
        return _shares(case)

    def break_blocks(self, kv: PagedCache) -> None:
        def extend(sequence: TokenSequence, blocks: int) -> list[bytes]:
            chain, size = kv._attacher.hashes.setdefault(sequence.id, []), kv.block_size
            for index in range(len(chain), blocks):
                self.happened += index > 0
                own = sequence.tokens[index * size : (index + 1) * size]
                chain += extend_hashes([], own, sequence.request.spec.cache_salt, size, 1)
            return chain

        kv._attacher.extend_hashes = extend  # type: ignore[method-assign]


class KeysAhead(PagedFault):
    """A sequence that computes known tokens again keeps the hashes of blocks that it has not filled yet."""

    def suits(self, case: Case) -> bool:
        return _shares(case)

    def break_blocks(self, kv: PagedCache) -> None:
        enter = kv._enter

        def keep(span: Span) -> None:
            chain = list(kv._hashes.get(span.sequence.id, []))
            enter(span)
            cut = kv._hashes[span.sequence.id]
            self.happened += len(cut) < len(chain)
            cut += chain[len(cut) :]

        kv._enter = keep  # type: ignore[method-assign]


# ------------------------------------------------------------------ windows


class WindowFault(PagedFault):
    windowed = True

    def break_blocks(self, kv: PagedCache) -> None:
        for tables in kv._groups:
            if isinstance(tables, WindowTables):
                self.break_window(kv, tables)

    def break_window(self, kv: PagedCache, tables: WindowTables) -> None:
        raise NotImplementedError


class WindowFreedTooEarly(WindowFault):
    """Layers with a window let go of the first block that the next query sees."""

    def break_window(self, kv: PagedCache, tables: WindowTables) -> None:
        seen, let_go = tables.first_seen, tables.let_go

        def hasten(span: Span) -> None:
            tables.first_seen = lambda at: min(seen(at) + 1, at // kv.block_size)  # type: ignore[method-assign]
            let_go(span)
            tables.first_seen = seen  # type: ignore[method-assign]
            held = tables._first.get(span.sequence.id, 0)
            self.happened += held > seen(span.start)

        tables.let_go = hasten  # type: ignore[method-assign]


class LateCheckpoint(WindowFault):
    """A prefix counts as found, though the first block that its continuation sees is not there."""

    def suits(self, case: Case) -> bool:
        return _shares(case)

    def break_window(self, kv: PagedCache, tables: WindowTables) -> None:
        attacher = kv._attacher
        locate = attacher._location

        def any_block(sequence: TokenSequence, index: int, group: int) -> int | None:
            found = locate(sequence, index, group)
            if found is None and group == tables.group and len(kv._hashes.get(sequence.id, [])) > index:
                self.happened += 1
                return next(iter(kv._blocks.block_of.values()), None)
            return found

        attacher._location = any_block  # type: ignore[method-assign]


# ------------------------------------------------------------------ swapping


class ForgottenToForget(PagedFault):
    """Host memory that is given back is still believed to hold what it held."""

    def suits(self, case: Case) -> bool:
        return _shares(case) and swaps_out(case)

    def break_blocks(self, kv: PagedCache) -> None:
        swap = kv._swap

        def give_back(block: int) -> None:
            self.happened += block in swap._hash_of
            swap._free.append(block)

        swap._give_back = give_back  # type: ignore[method-assign]


class SiblingsTakenForEqual(PagedFault):
    """Of a block that siblings have filled differently, as much comes back as the last of them has."""

    def suits(self, case: Case) -> bool:
        return case.block_size is not None and swaps_out(case)

    def break_blocks(self, kv: PagedCache) -> None:
        attacher = kv._attacher
        filled = attacher._filled

        def last(found: list[Attachment]) -> dict[int, int]:
            most = filled(found)
            of_last: dict[int, int] = {}
            for attachment in found:
                of_last |= filled([attachment])
            self.happened += of_last != most
            return of_last

        attacher._filled = last  # type: ignore[method-assign,assignment]


def _shares(case: Case) -> bool:
    return case.block_size is not None and case.prefix_caching
