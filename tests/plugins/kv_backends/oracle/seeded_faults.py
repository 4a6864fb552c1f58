"""Faults to be found by the stress test: each spoils one thing that KV memory must get right.

Most happen once in a run, at a chance that is drawn from the seed; a logical one happens whenever it can.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from copy import copy

import host_faults
import move_faults
from fault import Fault

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.kv import KVCache
from turnout.core.types.decision import Continuation
from turnout.core.types.request import Request
from turnout.plugins.kv_backends.contiguous.cache import ContiguousCache

__all__ = ["FAULTS"]


class StaleTable(Fault):
    """The device half sees some block, or slab, that a sequence had before its last copy-on-write."""

    def break_device_half(self, attention: AttentionBackend) -> None:
        kv, bind = attention._cache, attention.bind  # type: ignore[attr-defined]
        slabs = isinstance(kv, ContiguousCache)
        seen: dict[int, object] = {}

        def bind_stale(plan: object) -> None:
            tables = kv.slabs if slabs else kv.tables
            stale = {number: self._stale(seen.get(number), table) for number, table in tables.items()}
            seen.clear()
            seen.update((number, copy(table)) for number, table in tables.items())
            seen_now = ("slabs", stale) if slabs else ("group_tables", [stale, *kv.group_tables[1:]])
            attention._cache = _With(kv, *seen_now)  # type: ignore[attr-defined]
            bind(plan)  # type: ignore[arg-type]

        attention.bind = bind_stale  # type: ignore[method-assign]

    def _stale(self, before: object, now: object) -> object:
        if isinstance(now, array):
            was = before[: len(now)] if isinstance(before, array) else now[:0]
            stale = was + now[len(was) :]
            changed = stale != now
        else:
            changed = before is not None and before.start != now.start  # type: ignore[attr-defined]
            stale = before
        return stale if changed and self.now() else now


class _With:
    """A KV cache with other tables."""

    def __init__(self, kv: KVCache, name: str, tables: object) -> None:
        self._kv = kv
        setattr(self, name, tables)

    def __getattr__(self, name: str) -> object:
        return getattr(self._kv, name)


class SkippedPosition(Fault):
    """A prompt of which a chunk starts one position too late."""

    def after_step(self, engine: Engine) -> None:
        for request in engine.scheduler.queues.running:
            for sequence in request.live:
                if sequence.held and len(sequence.tokens) - sequence.computed > 1 and self.now():
                    sequence.computed += 1


class RejectedGuessKept(Fault):
    """After a guess was wrong, its KV counts as that of the token that came instead."""

    def break_engine(self, engine: Engine) -> None:
        apply = engine._apply

        def keep(request: Request, chosen: list[Continuation], now: float) -> object:
            wrong = [c.parent for c in chosen if 0 < len(c.tokens) <= len(c.parent.draft)]
            deltas = apply(request, chosen, now)
            for sequence in wrong:
                if sequence in request.live and self.now():
                    sequence.computed += 1
            return deltas

        engine._apply = keep  # type: ignore[method-assign,assignment]


FAULTS: Mapping[str, Callable[[int], Fault]] = {
    **{name: getattr(faults, name) for faults in (move_faults, host_faults) for name in faults.__all__},
    **{fault.__name__: fault for fault in (StaleTable, SkippedPosition, RejectedGuessKept)},
}
