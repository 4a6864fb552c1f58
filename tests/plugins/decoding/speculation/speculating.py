"""Serving requests with an engine that speculates, in the test's own thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnout.core.engine.engine import Engine
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.plugins.decoding.speculation.strategy import Speculative


def run(engine: Engine, specs: Iterable[RequestSpec]) -> dict[tuple[str, int], list[int]]:
    """Serve `specs` together; tokens by request id and choice. Nothing is left behind."""
    for spec in specs:
        engine.add(spec)
    tokens: dict[tuple[str, int], list[int]] = {}
    for delta in drain(engine):
        tokens.setdefault((delta.request_id, delta.index), []).extend(delta.tokens)
    assert_nothing_is_kept(engine)
    return tokens


def drain(engine: Engine) -> list[Delta]:
    deltas: list[Delta] = []
    while engine.busy:
        deltas += engine.step()
    assert not any(delta.error for delta in deltas), deltas
    return deltas


def speculative(engine: Engine) -> Any:
    return next(d for d in engine._dispatch._decodings if isinstance(d, Speculative))


def assert_nothing_is_kept(engine: Engine) -> None:
    """Of sequences that ended: no memory, the draft's neither, and no notes."""
    assert engine.scheduler.kv.free == engine.scheduler.kv.capacity
    strategies = [d for d in engine._dispatch._decodings if isinstance(d, Speculative)]
    for strategy in strategies:
        assert not strategy._proposals and not strategy._lengths._acceptance._own
        proposer: Any = strategy._proposer
        if hasattr(proposer, "_memory"):
            assert proposer._memory.kv.free == proposer._memory.kv.capacity
            assert not proposer._memory._held and not getattr(proposer._memory.kv, "_hashes", None)
        else:
            assert not proposer._texts
